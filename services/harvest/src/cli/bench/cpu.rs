//! CPU time and memory of processes, from `/proc`. Elsewhere than on Linux nothing is known, and reports leave it out.

/// Ticks of `/proc/PID/stat` in a second: fixed by the kernel's interface on every architecture that we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Fields of `/proc/PID/stat` after the name, which is in brackets and may hold anything.
struct Stat {
    parent: u32,
    own_ticks: u64,
    ended_children_ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    // Counted as in proc(5): the state is field 3, so field N is at N - 3.
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat { parent: fields.get(1)?.parse().ok()?, own_ticks: ticks(14)? + ticks(15)?, ended_children_ticks: ticks(16)? + ticks(17)? })
}

/// Whether a process is no more, or ended and not yet reaped; false where nothing is known.
pub fn has_ended(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(line) => line.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(_) => std::path::Path::new("/proc/self/stat").exists(),
    }
}

fn seconds(ticks: u64) -> f64 {
    // Exact far beyond any uptime: u32 holds 497 days of ticks.
    f64::from(u32::try_from(ticks).unwrap_or(u32::MAX)) / TICKS_PER_SECOND
}

/// CPU seconds that a process has used, user and system, its children not among them; `None` when it is not known.
pub fn of_process(pid: u32) -> Option<f64> {
    stat(pid).map(|stat| seconds(stat.own_ticks))
}

/// The same of a process and its children, those that have ended included: Postgres serves each connection by a child.
pub fn of_family(pid: u32) -> Option<f64> {
    let own = stat(pid)?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let children = processes.filter_map(stat).filter(|child| child.parent == pid).map(|child| child.own_ticks + child.ended_children_ticks);
    Some(seconds(own.own_ticks + own.ended_children_ticks + children.sum::<u64>()))
}

/// Memory of a process that is in RAM, MiB; `None` when it is not known.
pub fn resident_mib(pid: u32) -> Option<f64> {
    memory_mib(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// Memory of a process and its children that is their own, MiB: neither shared among them nor of files.
pub fn own_mib_of_family(pid: u32) -> Option<f64> {
    let own = |pid: u32| memory_mib(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "RssAnon:");
    let processes = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let children = processes.filter(|child| stat(*child).is_some_and(|stat| stat.parent == pid));
    Some(own(pid)? + children.filter_map(own).sum::<f64>())
}

fn memory_mib(status: &str, field: &str) -> Option<f64> {
    let kib = status.lines().find_map(|line| line.strip_prefix(field))?.trim().strip_suffix("kB")?.trim().parse::<u32>().ok()?;
    Some(f64::from(kib) / 1024.0)
}

/// The parent of a process.
pub fn parent_of(pid: u32) -> Option<u32> {
    stat(pid).map(|stat| stat.parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_process_is_told_from_a_running_one() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        assert!(!has_ended(std::process::id()));
        let pid = child.id();
        child.wait().unwrap();
        assert!(has_ended(pid), "it is reaped");
    }

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = parse("42 (a) b (c) S 7 1 1 0 -1 4194560 100 0 0 0 30 12 5 4 20 0 8 0 999").unwrap();
        assert_eq!((stat.parent, stat.own_ticks, stat.ended_children_ticks), (7, 42, 9));
    }

    #[test]
    fn memory_is_read_by_its_field() {
        let status = "Name:\ta\nVmRSS:\t    2048 kB\nRssAnon:\t     512 kB\n";
        assert_eq!((memory_mib(status, "VmRSS:"), memory_mib(status, "RssAnon:"), memory_mib(status, "VmSwap:")), (Some(2.0), Some(0.5), None));
    }
}
