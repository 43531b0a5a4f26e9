//! Produces evidence about the machine it runs in.
