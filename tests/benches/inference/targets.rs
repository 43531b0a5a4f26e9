//! What was measured, beside what the gateway is to reach.

use std::fmt;

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
    pub(crate) what: &'static str,
    pub(crate) figure: f64,
    /// `None` for what is told for comparison.
    pub(crate) target: Option<Target>,
    pub(crate) unit: &'static str,
}

impl Goal {
    pub(crate) const fn at_most(what: &'static str, figure: f64, bound: f64, unit: &'static str) -> Self {
        Self { what, figure, target: Some(Target::AtMost(bound)), unit }
    }

    pub(crate) const fn at_least(what: &'static str, figure: f64, bound: f64, unit: &'static str) -> Self {
        Self { what, figure, target: Some(Target::AtLeast(bound)), unit }
    }

    pub(crate) const fn told(what: &'static str, figure: f64, unit: &'static str) -> Self {
        Self { what, figure, target: None, unit }
    }
}

/// Above the goals.
pub(crate) const HEAD: &str = "\n| | Figure | Target | |\n|---|---|---|---|";

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, figure, target, unit } = self;
        write!(f, "| {what} | {figure:.3}{unit} |")?;
        match target {
            Some(target) => {
                let (sign, bound) = match target {
                    Target::AtMost(bound) => ('≤', bound),
                    Target::AtLeast(bound) => ('≥', bound),
                };
                let verdict = if target.is_met(*figure) { "met" } else { "**missed**" };
                write!(f, " {sign} {bound}{unit} | {verdict} |")
            }
            None => f.write_str(" | |"),
        }
    }
}
