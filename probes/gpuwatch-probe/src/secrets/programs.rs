//! Programs that take a secret by a short option or as an argument of no name.

/// How an option takes a secret.
#[derive(Clone, Copy)]
pub(super) enum Take {
    /// As the next argument, or attached.
    Password,
    /// As the next argument.
    Separate,
    /// Only attached, as `-pX`.
    Attached,
    /// As the next argument, after the verb `login`.
    AfterLogin,
    /// As `name:secret`.
    Login,
    /// As `name=secret`, or the path of a file.
    Cookie,
}

/// Verbs, an option that must be there, the number of arguments after them, and how many at the end are secrets.
type Positional = (&'static [&'static str], &'static str, usize, usize);

/// What a program takes as secrets.
pub(super) struct Program {
    names: &'static [&'static str],
    pub options: &'static [(&'static str, Take)],
    pub positional: &'static [Positional],
    /// What else it knows.
    knows: &'static [Knows],
}

#[derive(PartialEq, Eq)]
enum Knows {
    /// `-p` is something else, such as a port.
    OtherP,
    /// `/p:X`.
    SlashOptions,
    /// `pass:X`.
    PassPrefix,
    /// `name/X@database`.
    SlashLogin,
}

use Knows::{OtherP, PassPrefix, SlashLogin, SlashOptions};
use Take::{AfterLogin, Attached, Cookie, Login, Password, Separate};

const fn options(names: &'static [&'static str], options: &'static [(&'static str, Take)]) -> Program {
    Program { names, options, positional: &[], knows: &[] }
}

const fn arguments(names: &'static [&'static str], positional: &'static [Positional]) -> Program {
    Program { names, options: &[], positional, knows: &[] }
}

const fn knows(names: &'static [&'static str], knows: &'static [Knows]) -> Program {
    Program { names, options: &[], positional: &[], knows }
}

static PROGRAMS: &[Program] = &[
    options(
        &["mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlcheck", "mariadb", "mariadb-dump", "mysqlsh"],
        &[("-p", Attached)],
    ),
    options(&["7z", "7za", "7zz", "7zr", "rar", "unrar"], &[("-p", Attached)]),
    options(
        &[
            "docker",
            "podman",
            "nerdctl",
            "helm",
            "skopeo",
            "buildah",
            "crane",
            "oras",
            "regctl",
            "singularity",
            "apptainer",
        ],
        &[("-p", AfterLogin)],
    ),
    options(&["az", "oc", "cf", "argocd", "kubelogin"], &[("-p", AfterLogin)]),
    options(&["influx"], &[("-p", Password), ("-t", Password)]),
    options(&["codecov", "codecov.sh", "codecovcli", "codacy-coverage-reporter"], &[("-t", Password)]),
    options(&["cc-test-reporter", "codeclimate-test-reporter"], &[("-r", Password)]),
    options(
        &[
            "sshpass",
            "twine",
            "mongo",
            "mongosh",
            "mongodump",
            "mongorestore",
            "mongoexport",
            "mongoimport",
            "cqlsh",
            "mycli",
            "hdbsql",
            "yt-dlp",
            "youtube-dl",
            "arangosh",
            "couchbase-cli",
            "cbc",
        ],
        &[("-p", Password)],
    ),
    options(
        &["zip", "unzip", "zipcloak", "sqlcmd", "bcp", "mosquitto_pub", "mosquitto_sub", "ipmitool", "tsql", "fisql"],
        &[("-P", Password)],
    ),
    options(
        &["ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldapwhoami", "ldappasswd", "ldapcompare", "kinit"],
        &[("-w", Password), ("-s", Attached)],
    ),
    options(&["redis-cli", "redis-benchmark", "iredis", "valkey-cli"], &[("-a", Password), ("--pass", Password)]),
    options(&["plink", "pscp", "psftp", "putty"], &[("-pw", Separate)]),
    options(
        &["curl", "wget", "ab", "siege", "wrk", "xh"],
        &[("-u", Login), ("-U", Login), ("-b", Cookie), ("--cookie", Cookie)],
    ),
    options(&["http", "https", "httpie"], &[("-a", Login)]),
    options(&["lftp", "ncftp", "smbclient", "rpcclient", "smbget", "smbmap"], &[("-u", Login), ("-U", Login)]),
    options(&["keytool", "jarsigner"], &[("-storepass", Separate), ("-keypass", Separate)]),
    options(&["x11vnc"], &[("-passwd", Password)]),
    options(&["snmpget", "snmpwalk"], &[("-A", Password), ("-X", Password), ("-c", Password)]),
    options(&["gh"], &[("-b", AfterLogin), ("--body", AfterLogin)]),
    options(&["ssh-keygen"], &[("-N", Separate), ("-P", Separate)]),
    Program {
        names: &["xfreerdp", "wfreerdp", "net"],
        options: &[],
        positional: &[(&["use"], "", 3, 1)],
        knows: &[SlashOptions],
    },
    Program {
        names: &["openssl"],
        options: &[("-k", Separate), ("-K", Separate)],
        positional: &[],
        knows: &[PassPrefix],
    },
    arguments(&["rabbitmqctl"], &[(&["add_user|change_password|authenticate_user"], "", 2, 1)]),
    arguments(&["htpasswd"], &[(&[], "b", 3, 1), (&[], "n", 2, 1)]),
    arguments(
        &["mc"],
        &[
            (&["alias|config", "set|host"], "", 4, 2),
            (&["config", "host", "add"], "", 4, 2),
            (&["admin", "user", "add"], "", 3, 1),
        ],
    ),
    arguments(&["wpa_passphrase"], &[(&[], "", 2, 1)]),
    arguments(&["wandb"], &[(&["login"], "", 1, 1)]),
    // The only setting with two values: `http-basic.NAME user X`.
    arguments(&["poetry"], &[(&["config"], "", 3, 1)]),
    knows(&["sqlplus", "expdp", "impdp", "sqlldr", "rman"], &[SlashLogin]),
    knows(
        &[
            "ssh", "scp", "sftp", "mkdir", "cp", "srun", "sbatch", "salloc", "sinfo", "squeue", "psql", "pg_dump",
            "nmap",
        ],
        &[OtherP],
    ),
    knows(&["rsync", "tar", "install", "ps", "kill", "lsof", "nc", "perf", "pytest"], &[OtherP]),
    knows(&["nvidia-smi", "torchrun", "accelerate", "deepspeed", "ray", "jupyter", "vllm"], &[OtherP]),
];

impl Program {
    fn knows(&self, it: &Knows) -> bool {
        self.knows.contains(it)
    }

    pub(super) fn has_other_p(&self) -> bool {
        self.knows(&OtherP) || self.options.iter().any(|(option, take)| *option == "-p" && matches!(take, Attached))
    }

    pub(super) fn has_slash_options(&self) -> bool {
        self.knows(&SlashOptions)
    }

    pub(super) fn has_pass_prefix(&self) -> bool {
        self.knows(&PassPrefix)
    }

    pub(super) fn has_slash_login(&self) -> bool {
        self.knows(&SlashLogin)
    }

    /// Returns whether it takes a user with a password by an option.
    pub(super) fn takes_login(&self) -> bool {
        self.options.iter().any(|(_, take)| matches!(take, Login))
    }
}

/// Returns what is known of a program.
pub(super) fn program(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|it| it.names.contains(&name))
}
