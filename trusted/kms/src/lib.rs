//! The key management service: releases keys to code that proved itself.
