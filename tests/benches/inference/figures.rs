//! What several measurements say together.

/// A figure of all, and the standard error that their differences let expect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mean {
    pub(crate) mean: f64,
    pub(crate) error: f64,
}

impl Mean {
    pub(crate) fn of(figures: impl Iterator<Item = f64>) -> Self {
        let figures: Vec<f64> = figures.collect();
        Self { mean: sum(&figures) / count(&figures), error: error(&figures) }
    }

    /// How many times the second of each pair the first is. The mean of ratios would be larger than that of all by what the
    /// seconds differ.
    pub(crate) fn of_ratios(pairs: impl Iterator<Item = (f64, f64)>) -> Self {
        let (figures, others): (Vec<_>, Vec<_>) = pairs.unzip();
        let ratios: Vec<f64> = figures.iter().zip(&others).map(|(figure, other)| figure / other).collect();
        Self { mean: sum(&figures) / sum(&others), error: error(&ratios) }
    }
}

fn sum(figures: &[f64]) -> f64 {
    figures.iter().sum()
}

#[expect(clippy::cast_precision_loss, reason = "there are few")]
fn count(figures: &[f64]) -> f64 {
    figures.len() as f64
}

/// Of the mean of independent figures.
fn error(figures: &[f64]) -> f64 {
    let (count, mean) = (count(figures), sum(figures) / count(figures));
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    (squares / (count - 1.0) / count).sqrt()
}
