//! Verifies evidence against named trust roots.
