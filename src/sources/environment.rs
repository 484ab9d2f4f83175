//! Reads a process's environment and control groups: the settings that matter for device memory, the batch job and the
//! container.

/// Most variables kept; the texts are cut like a command line.
const VARIABLES_MAX: usize = 64;

/// Variables of batch systems with the job's number.
const JOBS: [(&str, &str); 3] = [("slurm", "SLURM_JOB_ID"), ("pbs", "PBS_JOBID"), ("lsf", "LSB_JOBID")];

/// What the names of containers' control groups begin with, and what runs them.
const CONTAINERS: [(&str, &str); 6] = [
    ("docker-", "docker"),
    ("libpod-", "podman"),
    ("cri-containerd-", "containerd"),
    ("crio-", "cri-o"),
    ("lxc.payload.", "lxc"),
    ("apptainer-", "apptainer"),
];

/// Variables that a launcher sets for each of the ranks that it starts, and only for them.
const RANKS: [&str; 3] = ["TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// Characters of a container's id that its tools show.
const ID: usize = 12;

/// Returns the variables that matter for device memory, sorted, from /proc/PID/environ.
pub(super) fn settings(environ: &str) -> Vec<String> {
    let mut all: Vec<String> = environ.split('\0').filter(|it| matters(it)).map(str::to_owned).collect();
    all.sort();
    all.truncate(VARIABLES_MAX);
    all
}

fn matters(variable: &str) -> bool {
    let Some((name, _)) = variable.split_once('=') else { return false };
    let is_allocator = name.starts_with("PYTORCH_") && name.ends_with("ALLOC_CONF");
    is_allocator || name.starts_with("CUDA_") || name.starts_with("NCCL_")
}

/// Returns whether a launcher has started the process as one of several ranks.
pub(super) fn is_rank(environ: &str) -> bool {
    let names = environ.split('\0').filter_map(|it| it.split_once('=')).map(|(name, _)| name);
    names.into_iter().any(|it| RANKS.contains(&it))
}

/// Returns the batch job and the container: `slurm 4242, docker 0123456789ab`.
pub(super) fn place(environ: &str, cgroup: &str) -> Option<String> {
    let variable = |name: &str| environ.split('\0').find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    let by_variable = || JOBS.iter().find_map(|(system, name)| Some(format!("{system} {}", variable(name)?)));
    let names = || cgroup.lines().filter_map(|it| it.splitn(3, ':').nth(2)).flat_map(|it| it.split('/'));
    let by_group = || {
        let job = names()
            .find_map(|it| it.strip_prefix("job_").filter(|id| id.bytes().all(|digit| digit.is_ascii_digit())))?;
        cgroup.contains("slurm").then(|| format!("slurm {job}"))
    };
    let words: Vec<String> = by_variable().or_else(by_group).into_iter().chain(container(cgroup)).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn container(cgroup: &str) -> Option<String> {
    let paths = || cgroup.lines().filter_map(|it| it.splitn(3, ':').nth(2));
    let by_name = |name: &str| {
        let (id, by) = CONTAINERS.iter().find_map(|(begin, by)| Some((name.strip_prefix(begin)?, by)))?;
        let id = id.trim_end_matches(".scope");
        (!id.is_empty()).then(|| format!("{by} {}", id.chars().take(ID).collect::<String>()))
    };
    // Where systemd makes no groups, the name is the id, below a group of the tool's.
    let by_parent = |path: &str| {
        let mut names = path.split('/').skip_while(|it| !matches!(*it, "docker" | "kubepods" | "lxc"));
        let by = names.next().map(|it| if it == "kubepods" { "container" } else { it })?;
        let id = names.last().filter(|it| by == "lxc" || is_id(it))?;
        Some(format!("{by} {}", id.chars().take(ID).collect::<String>()))
    };
    paths().flat_map(|it| it.split('/')).find_map(by_name).or_else(|| paths().find_map(by_parent))
}

fn is_id(name: &str) -> bool {
    name.len() >= ID && name.bytes().all(|it| it.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_matter_for_device_memory_are_kept_and_no_others() {
        let environ = "PATH=/bin\0NCCL_DEBUG=INFO\0CUDA_VISIBLE_DEVICES=0,1\0PYTORCH_CUDA_ALLOC_CONF=expandable_segments:\
                       True\0PYTORCH_ALLOC_CONF=a\0PYTORCH_NVML_BASED_CUDA_CHECK=1\0CUDA_TORN\0";
        let kept = [
            "CUDA_VISIBLE_DEVICES=0,1",
            "NCCL_DEBUG=INFO",
            "PYTORCH_ALLOC_CONF=a",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ];
        assert_eq!(settings(environ), kept);
        let many: Vec<String> = (0..1000).map(|it| format!("CUDA_{it}=1")).collect();
        assert_eq!(settings(&many.join("\0")).len(), VARIABLES_MAX);
    }

    #[test]
    fn ranks_are_what_a_launcher_started() {
        assert!(is_rank("PATH=/bin\0TORCHELASTIC_RUN_ID=none\0RANK=3\0") && is_rank("OMPI_COMM_WORLD_RANK=0"));
        // Kubernetes sets these for a container's first process, which has no launcher.
        assert!(!is_rank("RANK=3\0WORLD_SIZE=8\0LOCAL_RANK=0\0") && !is_rank("A=PMI_RANK=3\0"));
    }

    #[test]
    fn jobs_and_containers_are_named_as_their_tools_name_them() {
        let id = "0123456789abcdef".repeat(4);
        let cases = [
            ("", "0::/".to_owned(), None),
            ("", "0::/user.slice/user-1000.slice/session-3.scope".to_owned(), None),
            ("SLURM_JOB_ID=4242\0", "0::/".to_owned(), Some("slurm 4242")),
            ("", "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0".to_owned(), Some("slurm 77")),
            ("", format!("0::/system.slice/docker-{id}.scope"), Some("docker 0123456789ab")),
            ("", format!("12:pids:/docker/{id}\n0::/x"), Some("docker 0123456789ab")),
            ("", format!("0::/machine.slice/libpod-{id}.scope/container"), Some("podman 0123456789ab")),
            (
                "",
                format!("0::/kubepods.slice/kubepods-pod1a.slice/cri-containerd-{id}.scope"),
                Some("containerd 0123456789ab"),
            ),
            ("", format!("4:memory:/kubepods/burstable/pod1-2/{id}"), Some("container 0123456789ab")),
            ("", "0::/lxc/training".to_owned(), Some("lxc training")),
            ("PBS_JOBID=9\0", format!("0::/docker/{id}"), Some("pbs 9, docker 0123456789ab")),
            ("", "0::/system.slice/docker.service".to_owned(), None),
        ];
        for (environ, cgroup, expected) in cases {
            assert_eq!(place(environ, &cgroup).as_deref(), expected, "{environ:?} {cgroup}");
        }
    }
}
