//! `gpuwatch mcp`: gpuwatch's answers as tools of the Model Context Protocol, on standard input and output.
//!
//! Each call runs gpuwatch itself with `--json`, so that an assistant reads what a person's command prints.

/// Standard input and output, where what is no JSON is answered.
mod lines;
/// The tools, and the commands behind them.
mod tools;

use super::{ConfigUse, Invocation, Subcommand};
use crate::cli::runtime;
use anyhow::{Context, Result};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
    },
    service::RequestContext,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Map;
use std::{env, path::PathBuf, process::Stdio, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

/// The exit code of what SIGTERM ends.
const TERMINATED: u8 = 143;

/// The most bytes of an answer, and of what a command says beside it.
const ANSWER: usize = 1 << 20;
const MESSAGES: usize = 16 << 10;

const INSTRUCTIONS: &str = "gpuwatch knows where the GPU memory of PyTorch jobs goes. `recordings` lists runs; `check` judges \
                            one: what grows, which line keeps it, why memory ran out; `explain` says what to do about a cause; \
                            `peak` says what a step's highest moment consists of.";

/// What a server adds that may act, and one that may not.
const ACTS: &str = " `fit` proves a change without a GPU: it runs the script on a simulated card, and `advise` measures what \
                    would save memory.";
const READS: &str =
    " This server runs no job and changes nothing: `gpuwatch mcp --allow-actions` also has tools that do.";

/// The arguments of `gpuwatch mcp`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuwatch mcp                    started by an assistant, as its configuration says\n  gpuwatch mcp --allow-actions    in a sandbox, with fit and advise\n\n\
                        The tools read recordings, snapshots and the state of this machine. With --allow-actions there are also \
                        those that run commands or look into a running job: whoever speaks to this server can then run any program as \
                        this user."
)]
pub(super) struct McpArgs {
    /// Also offer the tools that run commands (fit, advise, whatif) or look into running jobs (peak, sites).
    #[arg(long)]
    allow_actions: bool,
}

impl Subcommand for McpArgs {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn failure_code(&self) -> u8 {
        2
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        let program = env::current_exe().context("gpuwatch cannot find its own program")?;
        let server = Server { program, may_act: self.allow_actions };
        let runtime = runtime()?;
        let code = runtime.block_on(async {
            let mut ended = signal(SignalKind::terminate())?;
            tokio::select! {
                done = session(server) => done.map(|()| 0),
                _ = ended.recv() => Ok(TERMINATED),
            }
        });
        // What runs for a call ends with the runtime. A read of standard input that waits is no reason to stay.
        runtime.shutdown_background();
        code
    }
}

/// Answers one client, until it closes standard input or output.
async fn session(server: Server) -> Result<()> {
    let (ends, written) = lines::ends();
    let service = server.serve(ends).await.context("no client began a session on standard input")?;
    service.waiting().await.context("the session broke off")?;
    // The last answers are still on their way.
    let _ = written.await;
    Ok(())
}

#[derive(Clone)]
struct Server {
    program: PathBuf,
    may_act: bool,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("gpuwatch", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned() + if self.may_act { ACTS } else { READS });
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::offered(self.may_act).map(described).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = tools::offered(self.may_act).find(|it| it.name == request.name);
        let tool = tool.ok_or_else(|| ErrorData::invalid_params(self.unknown(&request.name), None))?;
        let words = tool.command(&request.arguments.unwrap_or_default());
        let words = words.map_err(|why| ErrorData::invalid_params(why, None))?;
        tokio::select! {
            answer = self.answer(&words) => Ok(answer.into()),
            () = context.ct.cancelled() => Ok(failed("the call was cancelled").into()),
        }
    }
}

impl Server {
    fn unknown(&self, name: &str) -> String {
        if !self.may_act && tools::offered(true).any(|it| it.name == name) {
            return format!("{name} runs commands or looks into a job: start `gpuwatch mcp --allow-actions` for it");
        }
        let names: Vec<&str> = tools::offered(self.may_act).map(|it| it.name).collect();
        format!("no tool has this name; there are {}", names.join(", "))
    }

    /// Runs gpuwatch with these arguments, and returns what it prints.
    async fn answer(&self, words: &[String]) -> CallToolResult {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = match command.spawn() {
            Ok(it) => Running(it),
            Err(why) => return failed(&format!("gpuwatch could not be started again: {why}")),
        };
        let (out, errors) = (running.0.stdout.take(), running.0.stderr.take());
        let ((out, is_whole), (errors, _)) = tokio::join!(end_of(out, ANSWER), end_of(errors, MESSAGES));
        if !is_whole {
            return failed(&format!(
                "the answer has more than {ANSWER} bytes: ask for less, or read it with gpuwatch itself"
            ));
        }
        let code = running.0.wait().await.ok().and_then(|it| it.code());
        let messages = errors.trim_end();
        let mut content =
            vec![ContentBlock::text(format!("exit code {}", code.map_or("none".into(), |it| it.to_string())))];
        content.extend(Some(messages).filter(|it| !it.is_empty()).map(ContentBlock::text));
        content.extend(Some(&out).filter(|it| !it.is_empty()).map(ContentBlock::text));
        // Other codes than 0 are verdicts, with an answer.
        if out.is_empty() && code != Some(0) {
            CallToolResult::error(content)
        } else {
            CallToolResult::success(content)
        }
    }
}

/// A command that ends with what asked for it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It ends its own children.
        if let Some(pid) = self.0.id().and_then(|it| i32::try_from(it).ok()).and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// Reads a stream to its end, so that its writer never fails. Returns its last bytes, and whether these are all.
async fn end_of(stream: Option<impl AsyncRead + Unpin>, most: usize) -> (String, bool) {
    let (mut bytes, mut is_whole) = (Vec::new(), true);
    if let Some(mut it) = stream {
        // What was read until a failure is what there is.
        while it.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
            let more = bytes.len().saturating_sub(most);
            is_whole &= more == 0;
            // Not for each few bytes.
            if more > most {
                bytes.drain(..more);
            }
        }
    }
    bytes.drain(..bytes.len().saturating_sub(most));
    (String::from_utf8_lossy(&bytes).into_owned(), is_whole)
}

fn failed(why: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(why)])
}

/// Describes a tool to clients.
fn described(it: &'static tools::Tool) -> Tool {
    let schema = it.schema().as_object().cloned().unwrap_or_else(Map::new);
    let mut hints = ToolAnnotations::new();
    (hints.read_only_hint, hints.open_world_hint) = (Some(!it.is_action), Some(it.is_action));
    Tool::new(it.name, it.about, Arc::new(schema)).with_annotations(hints)
}
