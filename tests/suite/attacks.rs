//! The rows of the attack list that containers are concerned with.
