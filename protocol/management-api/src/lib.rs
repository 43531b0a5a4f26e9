//! Wire types of the management API: dated versions, identifiers, error bodies.
