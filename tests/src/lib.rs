//! Journeys across the whole system, through real processes.
