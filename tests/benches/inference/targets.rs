//! What was measured, beside what the gateway is to reach.

use std::fmt;

use crate::figures::Mean;

/// How a figure is to compare with its bound.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Target {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtMost(bound) => figure <= bound,
            Self::AtLeast(bound) => figure >= bound,
        }
    }
}

/// A figure, and what it should be.
pub(crate) struct Goal {
    what: &'static str,
    figure: Figure,
    /// `None` for what is told for comparison.
    target: Option<Target>,
    unit: &'static str,
}

/// What was measured.
pub(crate) struct Figure {
    value: f64,
    /// Its standard error, where that is known.
    error: Option<f64>,
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self { value, error: None }
    }
}

impl From<Mean> for Figure {
    fn from(Mean { mean, error }: Mean) -> Self {
        Self { value: mean, error: Some(error) }
    }
}

impl Goal {
    pub(crate) fn new(
        what: &'static str,
        figure: impl Into<Figure>,
        target: impl Into<Option<Target>>,
        unit: &'static str,
    ) -> Self {
        Self { what, figure: figure.into(), target: target.into(), unit }
    }
}

/// Above the goals.
pub(crate) const HEAD: &str = "\n| | Figure | Target | |\n|---|---|---|---|";

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, figure: Figure { value, error }, target, unit } = self;
        let error = error.map(|error| format!(" ± {error:.3}")).unwrap_or_default();
        write!(f, "| {what} | {value:.3}{error}{unit} |")?;
        match target {
            Some(target) => {
                let (sign, bound) = match target {
                    Target::AtMost(bound) => ('≤', bound),
                    Target::AtLeast(bound) => ('≥', bound),
                };
                let verdict = if target.is_met(*value) { "met" } else { "**missed**" };
                write!(f, " {sign} {bound}{unit} | {verdict} |")
            }
            None => f.write_str(" | |"),
        }
    }
}
