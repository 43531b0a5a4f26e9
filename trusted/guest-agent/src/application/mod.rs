//! The tenant's application: its scripts, its compose file, its orderly end.

mod bash;
mod compose;
mod pre_launch;
mod user_config;
mod variables;

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cloister_app_compose::{AppCompose, AppId, ComposeFile, InstanceId, Runner};
use cloister_sealed_env::{Environment, Selection, Skipped};
use tokio::process::Command;
use tracing::warn;

use self::variables::Variables;
use crate::engine::{Changes, Engine, SOCKET};
use crate::health;
use crate::hidden::Hidden;
use crate::machine::{DATA, RUNTIME};
use crate::output::{self, CommandError};
use crate::progress::Progress;

/// Why the application does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplicationError {
    #[error("cannot write the application's files")]
    Write(#[from] io::Error),
    #[error("the app-compose document has no program for its runner")]
    NoProgram,
    #[error("the init script failed")]
    InitScript(#[source] CommandError),
    #[error("the pre-launch script failed")]
    PreLaunchScript(#[source] CommandError),
    #[error("the main script failed")]
    MainScript(#[source] CommandError),
    #[error("{0}")]
    Compose(String),
}

/// The application of this CVM, ready to be started.
#[derive(Debug)]
pub(crate) struct Application {
    app: AppCompose,
    /// Project directory on the data disk: relative paths in compose files and scripts start here.
    directory: PathBuf,
    /// Where scripts lie during this boot.
    scripts: PathBuf,
    /// Environment of every program of the application; the pre-launch script may change it.
    environment: Variables,
    /// Values of the sealed environment.
    hidden: Hidden,
    main_script: Option<bash::MainScript>,
}

impl Application {
    /// Writes the application's documents into its project directory. Of the environment that the deployer
    /// sealed it gets what the document allows.
    pub(crate) fn prepare(
        app: AppCompose,
        app_id: &AppId,
        instance: Option<&InstanceId>,
        sealed: Environment,
    ) -> Result<Self, ApplicationError> {
        let directory = Path::new(DATA).join("app");
        let scripts = Path::new(RUNTIME).join("scripts");
        fs::create_dir_all(&scripts)?;
        write_private(&directory.join("app-compose.json"), app.bytes())?;
        let Selection { kept, skipped } =
            sealed.select(app.members().allowed_envs.iter().map(String::as_str));
        for Skipped { name, why } in skipped {
            warn!("the application does not get {name} of its environment: {why}");
        }
        variables::write_files(Path::new(RUNTIME), &kept)?;
        let mut environment = environment(&app, app_id, instance);
        environment.add(&kept);
        let hidden = Hidden::of(&kept);
        Ok(Self { app, directory, scripts, environment, hidden, main_script: None })
    }

    /// Leaves the deployer's configuration where the application looks for it. Nobody vouches for it.
    pub(crate) fn leave_user_config(&self, contents: Option<&[u8]>) -> Result<(), ApplicationError> {
        Ok(user_config::leave(&self.directory, contents)?)
    }

    /// What must not be printed.
    pub(crate) const fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    /// Images that the compose file names.
    pub(crate) fn images(&self) -> Vec<String> {
        let members = self.app.members();
        let file = members.docker_compose_file.as_deref().and_then(|text| ComposeFile::parse(text).ok());
        file.map(|file| file.images().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Runs the script that comes before the container engine, if there is one.
    pub(crate) async fn initialise(&self) -> Result<(), ApplicationError> {
        let Some(script) = self.app.members().init_script.as_deref() else { return Ok(()) };
        let mut bash = self.script("init.sh", script)?;
        output::check_hiding(&mut bash, &self.hidden).await.map_err(ApplicationError::InitScript)
    }

    /// Whether [`pre_launch`](Self::pre_launch) has anything to do.
    pub(crate) fn has_pre_launch(&self) -> bool {
        self.app.members().pre_launch_script.is_some()
    }

    /// Starts the application and returns once it runs.
    pub(crate) async fn launch(&mut self, progress: &Progress) -> Result<(), ApplicationError> {
        let program = self.app.program().ok_or(ApplicationError::NoProgram)?.to_owned();
        match self.app.members().runner {
            Runner::DockerCompose => self.compose_up(&program, progress).await,
            Runner::Bash => self.start_main_script(&program, progress).await,
        }
    }

    /// Tells from now on how the application does. Only the main script counts of an application that is one:
    /// nobody knows what it means the containers to be that it starts.
    pub(crate) fn watch(&self, engine: &Engine, changes: Changes, progress: &Progress) {
        if self.app.members().runner == Runner::DockerCompose {
            let containers = health::Containers {
                engine: engine.clone(),
                compose_file: self.directory.join(compose::COMPOSE_FILE),
                hidden: self.hidden.clone(),
            };
            tokio::spawn(containers.watch(changes, progress.clone()));
        }
    }

    /// Tidies up once the application runs.
    pub(crate) async fn settle(&self, engine: &Engine) {
        match self.app.members().runner {
            Runner::DockerCompose => compose::remove_unused_images(engine).await,
            // Nobody knows which images a script will still use.
            Runner::Bash => {}
        }
    }

    /// Asks the application to end; a main script is killed after `grace`.
    pub(crate) async fn stop(&mut self, grace: Duration) {
        match self.app.members().runner {
            Runner::DockerCompose => self.compose_stop().await,
            Runner::Bash => self.stop_main_script(grace).await,
        }
    }

    /// A program with the application's environment in its directory.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.environment.iter()).current_dir(&self.directory).kill_on_drop(true);
        command
    }

    /// Bash for a script, which is written where nobody else reads it.
    fn script(&self, name: &str, text: &str) -> io::Result<Command> {
        let file = self.scripts.join(name);
        write_private(&file, text.as_bytes())?;
        let mut bash = self.command("bash");
        bash.arg(file);
        Ok(bash)
    }
}

fn environment(app: &AppCompose, app_id: &AppId, instance: Option<&InstanceId>) -> Variables {
    let instance = instance.map(ToString::to_string).unwrap_or_default();
    [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        ("HOME", "/root".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("DOCKER_HOST", format!("unix://{SOCKET}")),
        // The classic builder: the engine has no BuildKit.
        ("DOCKER_BUILDKIT", "0".to_owned()),
        ("DSTACK_APP_ID", app_id.to_string()),
        ("DSTACK_APP_NAME", app.members().name.clone()),
        ("DSTACK_INSTANCE_ID", instance),
    ]
    .into_iter()
    .collect()
}

fn write_private(file: &Path, contents: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(file)?.write_all(contents)
}
