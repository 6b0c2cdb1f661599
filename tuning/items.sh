# shellcheck shell=bash
# What of a machine matters to RingMQ: kernel, rights, cgroup, processors, memory, network. Disks
# and interrupts are in devices.sh. Every function finds its items with `found`; none changes
# anything.

unmeasured='not measured here'

examine_kernel() {
    local release
    local effect='measured on two cores: no difference above the noise'
    get release /proc/sys/kernel/osrelease || release=unknown
    # Limits depend on it, too.
    version=0
    if [[ $release =~ ^([0-9]+)\.([0-9]+) ]]; then
        version=$((BASH_REMATCH[1] * 1000 + BASH_REMATCH[2]))
    fi
    if [ $version -lt 5013 ]; then
        found kernel need "$release" '5.13 or newer' \
            'older kernels cannot watch a socket until it is closed (multishot poll)' 'does not start'
    elif [ $version -lt 5019 ]; then
        found kernel like "$release" '6.1 or newer, or else 5.19' \
            'before 5.19 (COOP_TASKRUN) whatever comes interrupts a busy shard' "$effect"
    elif [ $version -lt 6001 ]; then
        found kernel like "$release" '6.1 or newer' \
            'before 6.1 (DEFER_TASKRUN) what comes is worked on at any system call of a shard' \
            "$effect"
    else
        found kernel ok "$release"
    fi

}

# may VARIABLE BIT: 1 where the process has the capability of that number, 0 where it has not.
may() {
    local _status
    get _status "$process/status"
    printf -v "$1" 0
    if [[ $_status =~ CapEff:[[:space:]]*([0-9a-f]+) ]]; then
        printf -v "$1" '%s' $(((0x${BASH_REMATCH[1]} >> $2) & 1))
    fi
}

# Sets filter to 1 where system calls of the process go through a seccomp filter.
find_filter() {
    local status
    get status "$process/status"
    filter=0
    if [[ $status =~ Seccomp:[[:space:]]*2 ]]; then filter=1; fi
}

# Finds out by trying whether a ring can be made. Sets ring to `yes` or `no`, or to nothing where
# nobody can tell, and ring_why to the reason of both latter.
try_ring() {
    local program told code file
    ring='' ring_why='not tried'
    if [ "$process" != /proc/self ]; then
        for file in "$root$process"/fd/*; do
            if [[ $(readlink -- "$file") != *'[io_uring]' ]]; then continue; fi
            ring=yes
            return
        done
        ring_why="not tried: what stands around process ${process##*/} is known to itself alone"
        return
    fi
    [ "${try_rings:-1}" = 1 ] || return
    # Others than root may be able to write what lies in the source tree or in PATH.
    if ! find_program program || { [ "$EUID" = 0 ] && [ "$program" != "${RINGMQ:-}" ]; }; then
        ring_why='not tried: there is no ringmq to try it with (RINGMQ names one; root runs no other)'
        return
    fi
    # What `timeout` says itself, where a filter forbids it its timer, is no answer.
    # shellcheck disable=SC2016
    told=$(timeout 5 sh -c 'exec "$0" tune ring 2>&1' "$program" 2>/dev/null </dev/null)
    code=$?
    if [ $code = 0 ]; then
        ring=yes
    elif [ $code = 1 ] && [[ $told == 'ringmq: '* ]]; then
        ring=no ring_why=${told#ringmq: }
    else
        ring_why="not tried: $program cannot (exit code $code)"
    fi
}

# Whether the process is in the group whose members may make rings.
in_ring_group() {
    local group status list
    get group /proc/sys/kernel/io_uring_group && [[ $group =~ ^[0-9]+$ ]] || return
    get status "$process/status"
    list=
    if [[ $status =~ Gid:([[:space:]]+[0-9]+){3}[[:space:]]+([0-9]+) ]]; then list=${BASH_REMATCH[2]}; fi
    if [[ $status =~ Groups:([0-9[:blank:]]*) ]]; then list+=" ${BASH_REMATCH[1]//$'\t'/ }"; fi
    has "$group" "$list"
}

examine_rings() {
    local disabled root_only is
    get disabled /proc/sys/kernel/io_uring_disabled
    is="kernel.io_uring_disabled = $disabled"
    [ -n "$disabled" ] || is='no kernel.io_uring_disabled'
    # CAP_SYS_ADMIN is bit 21.
    may root_only 21
    [ "$disabled" = 1 ] && ! in_ring_group || root_only=0
    find_filter
    try_ring
    if [ "$ring" = no ]; then
        found io_uring need "$is; no ring could be made" "$ring_why" 'that is what a start would be told' \
            'does not start'
    elif [ $root_only = 1 ]; then
        found io_uring like "$is, and this is root" '0, or the user in the group of kernel.io_uring_group' \
            'only root and that group may make rings' 'does not start as another user'
    elif [ "$ring" = yes ]; then
        found io_uring ok "$is; a ring was made"
    elif [ -z "$disabled" ] || [ "$disabled" = 0 ] || { [ "$disabled" = 1 ] && in_ring_group; }; then
        found io_uring ok "$is; $ring_why"
    elif [ "$disabled" = 1 ]; then
        found io_uring need "$is; $ring_why" '0, or the user in the group of kernel.io_uring_group' \
            'only root and that group may make rings' 'does not start'
    else
        found io_uring need "$is; $ring_why" 'sysctl kernel.io_uring_disabled=0' 'no ring can be made' \
            'does not start'
    fi

    local by_default='the default profiles of docker and containerd forbid io_uring'
    if [ $filter = 0 ]; then
        found seccomp ok 'no filter'
    elif [ "$ring" = yes ]; then
        found seccomp ok 'a filter that allows io_uring'
    elif [ "$ring" = no ] && [[ $ring_why != *'seccomp filter'* ]]; then
        found seccomp ok 'a filter, and another thing is in the way'
    elif [ "$ring" = no ]; then
        found seccomp need 'a filter that forbids io_uring' 'one that allows it: tuning/seccomp.json' \
            "$by_default" 'does not start'
    else
        found seccomp need 'a filter, and nobody knows whether it allows io_uring' \
            "a ringmq to try it with, named by RINGMQ; or a filter that allows it: tuning/seccomp.json" \
            "$ring_why; $by_default" 'does not start where it is forbidden'
    fi
}

# limit VARIABLE NAME: the hard limit of that name of the process, or `unlimited`.
limit() {
    local _limits
    get _limits "$process/limits"
    if [[ $_limits =~ $2[[:space:]]+[^[:space:]]+[[:space:]]+([^[:space:]]+) ]]; then
        printf -v "$1" '%s' "${BASH_REMATCH[1]}"
    else
        printf -v "$1" unlimited
    fi
}

at_least() { [ "$1" = unlimited ] || [ "$1" -ge "$2" ]; }

examine_limits() {
    # Of a shard's own ring 100 KiB, of glommio's three 48 and the buffers that they register 192,
    # and rounded up; a nameserver in the same process is one shard more.
    local bytes files a_shard=448 lock_freely
    local wanted=$((a_shard * (shards + 1)))
    # CAP_IPC_LOCK is bit 14.
    may lock_freely 14
    limit bytes 'Max locked memory'
    limit files 'Max open files'
    local is=$bytes
    [ "$bytes" = unlimited ] || is="$((bytes / 1024)) KiB"
    if ! at_least "$bytes" $((512 * 1024)); then
        found memlock need "$is" '512 KiB or more: ulimit -l, LimitMEMLOCK, --ulimit memlock=-1' \
            "a shard's executor asks for it, whatever its rights" 'does not start'
    elif [ $version -ge 6014 ] && [ $lock_freely = 0 ] && ! at_least "$bytes" $((wanted * 1024)); then
        found memlock need "$is" "$wanted KiB ($a_shard a shard, and for a nameserver) or CAP_IPC_LOCK" \
            'since Linux 6.14 rings are locked memory' 'does not start, or only some shards do'
    else
        found memlock ok "$is"
    fi
    if at_least "$files" 24096; then
        found files ok "$files"
    else
        found files like "$files" '24096 (connectionsMax and 4096): ulimit -n, LimitNOFILE' \
            'connections, segments and queue files' 'connections above the limit are refused'
    fi
}

# groups VARIABLE CONTROLLER: folders of the cgroups that the process is in, from its own up;
# of version 2, or of version 1 with that controller.
groups() {
    local _lines _number _controllers _path _mount _list=
    get _lines "$process/cgroup"
    while IFS=: read -r _number _controllers _path; do
        [ -n "$_number" ] || continue
        if [ -z "$_controllers" ]; then
            _mount=/sys/fs/cgroup
        elif has "$2" "${_controllers//,/ }"; then
            _mount=/sys/fs/cgroup/$2
            [ -d "$root$_mount" ] || _mount=/sys/fs/cgroup/$_controllers
        else
            continue
        fi
        _path=${_path%/}
        while :; do
            _list+="$_mount$_path"$'\n'
            [ -n "$_path" ] || break
            _path=${_path%/*}
        done
    done <<<"$_lines"
    printf -v "$1" '%s' "$_list"
}

# Sets quota_cpus: whole processors that the cgroup's quota amounts to, or nothing; and
# quota_text.
read_quota() {
    local folders folder value quota period percent least=
    quota_cpus='' quota_text=none
    groups folders cpu
    while read -r folder; do
        [ -n "$folder" ] || continue
        if get value "$folder/cpu.max"; then
            read -r quota period <<<"$value"
        elif get quota "$folder/cpu.cfs_quota_us"; then
            get period "$folder/cpu.cfs_period_us"
        else
            continue
        fi
        [[ $quota =~ ^[0-9]+$ && $period =~ ^[1-9][0-9]*$ ]] || continue
        percent=$((quota * 100 / period))
        if [ -z "$least" ] || [ $percent -lt "$least" ]; then least=$percent; fi
    done <<<"$folders"
    [ -n "$least" ] || return
    quota_cpus=$((least / 100 > 0 ? least / 100 : 1))
    quota_text="$((least / 100)).$((least / 10 % 10)) processors"
}

# Sets what other items look at: cpus (a list), cpu_count, shards, shard_cpus (a list).
find_processors() {
    local status='' cores
    get status "$process/status"
    if [[ $status =~ Cpus_allowed_list:[[:space:]]*([0-9,-]+) ]]; then
        cpu_list=${BASH_REMATCH[1]}
    else
        get cpu_list /sys/devices/system/cpu/online || cpu_list=0
    fi
    expand cpus "$cpu_list"
    # shellcheck disable=SC2086
    set -- $cpus
    cpu_count=$#
    read_quota
    cores=$cpu_count
    if [ -n "$quota_cpus" ] && [ "$quota_cpus" -lt "$cores" ]; then cores=$quota_cpus; fi
    # As RingMQ counts: one a core, below four cores one fewer.
    shards=${shards_given:-$((cores >= 4 ? cores : (cores > 1 ? cores - 1 : 1)))}
    shard_cpus=
    while [ $# -gt 0 ] && [ "$(wc -w <<<"$shard_cpus")" -lt "$shards" ]; do
        shard_cpus+="$1 "
        shift
    done
    shard_cpus=${shard_cpus% }
}

examine_processors() {
    local online stat fields total=0 field steal
    get online /sys/devices/system/cpu/online || online=unknown
    found cpus ok "$cpu_list of $online; shards on ${shard_cpus// /,}"

    if [ -n "$quota_cpus" ] && [ "$quota_cpus" -lt "$cpu_count" ]; then
        found cpu-quota like "$quota_text" 'whole cores by a cpuset (Kubernetes: static CPU manager)' \
            'a quota that is used up stops every shard until its period of 100 ms ends' \
            "pauses of tens of ms under load ($unmeasured)"
    else
        found cpu-quota ok "$quota_text"
    fi

    get stat /proc/stat
    read -ra fields <<<"${stat%%$'\n'*}"
    for field in "${fields[@]:1:8}"; do total=$((total + field)); done
    steal=$((total > 0 ? ${fields[8]:-0} * 1000 / total : 0))
    if [ $steal -ge 10 ]; then
        found steal like "$((steal / 10)).$((steal % 10)) % of all time since the start" \
            'below 1 %: cores of its own, a host with less on it' \
            'the host gave the processor to others while a shard had work' \
            "p99 of everything ($unmeasured)"
    else
        found steal ok "$((steal / 10)).$((steal % 10)) %"
    fi

    local clock
    get clock /sys/devices/system/clocksource/clocksource0/current_clocksource
    case $clock in
    hpet | acpi_pm | jiffies | xen | refined-jiffies)
        found clocksource like "$clock" 'tsc, where the kernel trusts it (boot: tsc=reliable)' \
            'asking for the time, once a loop turn and message, becomes a slow system call' \
            "processor time ($unmeasured)" ;;
    *) found clocksource ok "${clock:-unknown}" ;;
    esac

    examine_frequency
    examine_idle_states
    local balancing nodes numbers
    if get balancing /proc/sys/kernel/numa_balancing && get nodes /sys/devices/system/node/online; then
        expand numbers "$nodes"
        if [ "$balancing" != 0 ] && has 1 "$numbers"; then
            change /proc/sys/kernel/numa_balancing 0
            found numa-balancing like "$balancing" 0 \
                'pages are unmapped to see who uses them, and shards never move' \
                "fewer page faults ($unmeasured)"
            return
        fi
    fi
    found numa-balancing ok "${balancing:-absent}"
}

examine_frequency() {
    local cpu governor all='' slow='' path wanted offered
    for cpu in $cpus; do
        path=/sys/devices/system/cpu/cpu$cpu/cpufreq
        current governor "$path/scaling_governor" || continue
        has "$governor" "$all" || all+="$governor "
        case $governor in
        powersave | conservative | ondemand)
            get offered "$path/scaling_available_governors"
            wanted=performance
            has $wanted "$offered" || [ -z "$offered" ] || continue
            slow=$governor
            change "$path/scaling_governor" $wanted ;;
        esac
    done
    if [ -n "$slow" ]; then
        found governor like "${all% }" performance 'the clock rises only after a while of work' \
            "first requests after a pause ($unmeasured); more power is used"
    else
        found governor ok "${all:-absent}"
    fi
}

examine_idle_states() {
    local cpu state path latency disabled name deep='' seen=0
    for cpu in $cpus; do
        for state in "$root/sys/devices/system/cpu/cpu$cpu/cpuidle"/state*; do
            path=${state#"$root"}
            get latency "$path/latency" || continue
            seen=1
            get disabled "$path/disable"
            if [[ $latency =~ ^[0-9]+$ ]] && [ "$latency" -gt 100 ] && [ "$disabled" = 0 ]; then
                get name "$path/name"
                has "$name($latency" "$deep" || deep+="$name($latency us) "
                change "$path/disable" 1
            fi
        done
    done
    if [ -n "$deep" ]; then
        found cstates like "${deep% }" 'idle states that end within 100 us' \
            'a shard without work sleeps, and wakes from a deep state late' \
            "latency at low load ($unmeasured); more power is used"
    elif [ $seen = 1 ]; then
        found cstates ok 'end within 100 us'
    else
        found cstates ok 'not visible'
    fi
}

examine_memory() {
    local folders folder value least='' wanted=$(((128 + 128 * shards) * 1024 * 1024))
    groups folders memory
    while read -r folder; do
        [ -n "$folder" ] || continue
        get value "$folder/memory.max" || get value "$folder/memory.limit_in_bytes" || continue
        # Without a limit it says `max`, or more than any machine has.
        [[ $value =~ ^[0-9]{1,15}$ ]] || continue
        if [ -z "$least" ] || [ "$value" -lt "$least" ]; then least=$value; fi
    done <<<"$folders"
    if [ -n "$least" ] && [ "$least" -lt $wanted ]; then
        found memory like "$((least / 1024 / 1024)) MiB (cgroup)" \
            "$((wanted / 1024 / 1024)) MiB for $shards shard(s)" \
            'buffers, caches and queue files of a shard take some 100 MiB, connections more' \
            'the kernel ends the process where the limit is reached'
    else
        local is='no limit'
        [ -z "$least" ] || is="$((least / 1024 / 1024)) MiB (cgroup)"
        found memory ok "$is"
    fi

    local huge
    current huge /sys/kernel/mm/transparent_hugepage/enabled
    if [ "$huge" = always ]; then
        change /sys/kernel/mm/transparent_hugepage/enabled madvise
        found thp like always madvise 'making a huge page can pause the thread that asks for memory' \
            "pauses ($unmeasured)"
    else
        found thp ok "${huge:-absent}"
    fi
    current huge /sys/kernel/mm/transparent_hugepage/defrag
    if [ "$huge" = always ]; then
        change /sys/kernel/mm/transparent_hugepage/defrag madvise
        found thp-defrag like always madvise 'memory is compacted by the thread that asks for it' \
            "pauses ($unmeasured)"
    else
        found thp-defrag ok "${huge:-absent}"
    fi

    local swaps line device='' swappiness
    get swaps /proc/swaps
    while read -r line _; do
        case $line in
        Filename | '' | *zram*) ;;
        *) device+="$line " ;;
        esac
    done <<<"$swaps"
    get swappiness /proc/sys/vm/swappiness
    if [ -n "$device" ] && [ "${swappiness:-0}" -gt 10 ]; then
        change /proc/sys/vm/swappiness 10
        found swap like "${device% }, vm.swappiness = $swappiness" \
            'none, or vm.swappiness of 10 or less' \
            'memory of an idle shard is paged out for the page cache' \
            "first requests after a pause ($unmeasured)"
    else
        found swap ok "${device:-none}"
    fi
}

examine_network() {
    local value
    if get value /proc/sys/net/core/somaxconn && [ "$value" -lt 1024 ]; then
        change /proc/sys/net/core/somaxconn 1024
        found somaxconn like "$value" 1024 'more clients that connect all at once wait for a shard' \
            'connections refused after a restart'
    else
        found somaxconn ok "${value:-absent}"
    fi
    if get value /proc/sys/net/ipv4/tcp_max_syn_backlog && [ "$value" -lt 1024 ]; then
        change /proc/sys/net/ipv4/tcp_max_syn_backlog 1024
        found syn-backlog like "$value" 1024 'the same, for connections that are half made' \
            'connections made a second later'
    else
        found syn-backlog ok "${value:-absent}"
    fi
}
