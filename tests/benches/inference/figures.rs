//! What several measurements say together.

/// A mean of independent figures.
pub(crate) struct Mean {
    pub(crate) mean: f64,
    /// Its standard error.
    pub(crate) error: f64,
}

impl Mean {
    #[expect(clippy::cast_precision_loss, reason = "there are few")]
    pub(crate) fn of(figures: impl Iterator<Item = f64>) -> Self {
        let figures: Vec<f64> = figures.collect();
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / count;
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        Self { mean, error: (squares / (count - 1.0) / count).sqrt() }
    }
}

/// The figure below which so many percent are; `NaN` of none.
pub(crate) fn quantile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or(f64::NAN)
}

/// The figure in the middle; the mean of both where there are two.
pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    let upper = quantile(&sorted, 50);
    if sorted.len() % 2 == 1 {
        return upper;
    }
    let lower = (sorted.len() / 2).checked_sub(1).and_then(|at| sorted.get(at)).copied();
    lower.map_or(f64::NAN, |lower| f64::midpoint(lower, upper))
}
