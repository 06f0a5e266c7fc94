//! harvest-frontend
