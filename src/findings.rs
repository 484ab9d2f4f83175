//! Every analysis of one session, at its own now.
