//! Futures that are made where they stay.

use std::pin::Pin;

/// What a function makes, in memory of its own. `Box::pin` is given a future that is there already, and copies it to that memory:
/// all that it may ever have at once, some kilobytes, of which it has next to nothing yet.
pub(crate) fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    // The memory is there first, so the compiler makes the future in it.
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
