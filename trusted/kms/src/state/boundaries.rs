use std::fmt;
use std::sync::Arc;

/// Hears the name of each boundary that a change of the state crosses, before it is crossed. A test ends
/// the process there, as `kill -9` would.
#[derive(Clone, Default)]
pub struct Boundaries(Option<Arc<Listener>>);

type Listener = dyn Fn(&str) + Send + Sync;

impl Boundaries {
    /// Calls `hear` at each boundary.
    #[must_use]
    pub fn heard_by(hear: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hear)))
    }

    /// `change` is at `place`.
    pub(crate) fn at(&self, change: &str, place: &str) {
        if let Some(hear) = &self.0 {
            hear(&format!("{change}/{place}"));
        }
    }
}

impl fmt::Debug for Boundaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Boundaries(heard)" } else { "Boundaries" })
    }
}
