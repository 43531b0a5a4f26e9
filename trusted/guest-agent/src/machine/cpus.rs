//! The machine's processors, as the kernel tells of them.

const UNKNOWN: &str = "unknown";
/// What the kernel calls a processor that QEMU emulates.
const EMULATED: &str = "QEMU TCG CPU";

/// The machine's processors.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cpus {
    /// Of the first one.
    pub(crate) model: String,
    pub(crate) count: u32,
}

impl Cpus {
    /// Reads the text of `/proc/cpuinfo`.
    pub(crate) fn parse(text: &str) -> Self {
        let values = |wanted: &'static str| {
            text.lines().filter_map(move |line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == wanted).then(|| value.trim().to_owned())
            })
        };
        Self {
            model: values("model name").next().unwrap_or_else(|| UNKNOWN.to_owned()),
            count: u32::try_from(values("processor").count()).unwrap_or(u32::MAX),
        }
    }

    /// Whether QEMU executes them in software, as far as whoever named them tells the truth.
    pub(crate) fn are_emulated(&self) -> bool {
        self.model.starts_with(EMULATED)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn model_and_count_are_read() {
        let text = "processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\n\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(Cpus::parse(text), Cpus { model: "QEMU TCG CPU version 2.5+".to_owned(), count: 2 });
        assert_eq!(Cpus::parse("vendor: x"), Cpus { model: "unknown".to_owned(), count: 0 });
    }

    proptest! {
        #[test]
        fn never_panics(text: String) {
            Cpus::parse(&text);
        }
    }
}
