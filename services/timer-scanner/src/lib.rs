//! harvest-timer-scanner
