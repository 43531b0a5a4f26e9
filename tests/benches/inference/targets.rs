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
    /// Standard error of the figure, where that is known.
    error: Option<f64>,
}

/// A mean of independent figures.
pub(crate) struct Mean {
    pub(crate) mean: f64,
    /// Its standard error.
    pub(crate) error: f64,
}

impl Mean {
    #[expect(clippy::cast_precision_loss, reason = "there are few")]
    pub(crate) fn of(figures: &[f64]) -> Self {
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / count;
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        Self { mean, error: (squares / (count - 1.0) / count).sqrt() }
    }
}

impl Goal {
    pub(crate) const fn at_most(what: &'static str, figure: f64, bound: f64, unit: &'static str) -> Self {
        Self { what, figure, target: Some(Target::AtMost(bound)), unit, error: None }
    }

    pub(crate) const fn at_least(what: &'static str, figure: f64, bound: f64, unit: &'static str) -> Self {
        Self { what, figure, target: Some(Target::AtLeast(bound)), unit, error: None }
    }

    pub(crate) const fn told(what: &'static str, figure: f64, unit: &'static str) -> Self {
        Self { what, figure, target: None, unit, error: None }
    }

    pub(crate) const fn give_or_take(self, error: f64) -> Self {
        Self { error: Some(error), ..self }
    }
}

/// Above the goals.
pub(crate) const HEAD: &str = "\n| | Figure | Target | |\n|---|---|---|---|";

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, figure, target, unit, error } = self;
        let error = error.map(|error| format!(" ± {error:.3}")).unwrap_or_default();
        write!(f, "| {what} | {figure:.3}{error}{unit} |")?;
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
