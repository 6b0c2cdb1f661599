# shellcheck shell=bash
# The record of what apply changed, for revert.
#
# A file of lines: the first names the form, the second the boot that the changes are of, each
# other one is a change, in the order in which they were made:
#   ITEM <tab> PATH <tab> OLD VALUE <tab> NEW VALUE
# A line is on the device before its change is made, so that whatever interrupts apply, nothing is
# changed without its old value being known. With its I/O scheduler a disk loses settings of its
# queue: they are in front of it in the record, so that they are brought back behind it. Their new
# value is `-` as long as the kernel has the last word on it, and `gone` where there is none.
#
# Root writes to the paths in it, so the record is only where nobody else can put one: not in the
# store, whose folder is of the broker's user. In /run it ends with the boot, as the settings do.

state_form='ringmq-tuning 1'
# shellcheck disable=SC2034 # The scripts that take this file in have it.
state_default=/run/ringmq-tuning/tuning.state
state_items=() state_paths=() state_old=() state_new=()

# boot_id VARIABLE: what tells this boot from others.
boot_id() { get "$1" /proc/sys/kernel/random/boot_id || printf -v "$1" unknown; }

# can_change ITEM PATH: whether apply changes such a path for that item.
can_change() {
    local pattern
    case $1 in
    governor) pattern='/sys/devices/system/cpu/cpu[0-9]+/cpufreq/scaling_governor' ;;
    cstates) pattern='/sys/devices/system/cpu/cpu[0-9]+/cpuidle/state[0-9]+/disable' ;;
    numa-balancing) pattern='/proc/sys/kernel/numa_balancing' ;;
    thp) pattern='/sys/kernel/mm/transparent_hugepage/enabled' ;;
    thp-defrag) pattern='/sys/kernel/mm/transparent_hugepage/defrag' ;;
    swap) pattern='/proc/sys/vm/swappiness' ;;
    scheduler) pattern='/sys/devices(/[^/]+)+/queue/(scheduler|nr_requests|iosched/[a-z0-9_]+)' ;;
    read-ahead) pattern='/sys/devices(/[^/]+)+/queue/read_ahead_kb' ;;
    rq-affinity) pattern='/sys/devices(/[^/]+)+/queue/rq_affinity' ;;
    disk-irqs | nic-irqs) pattern='/proc/irq/[0-9]+/smp_affinity_list' ;;
    rps) pattern='/sys/class/net/[^/]+/queues/rx-[0-9]+/rps_cpus' ;;
    somaxconn) pattern='/proc/sys/net/core/somaxconn' ;;
    syn-backlog) pattern='/proc/sys/net/ipv4/tcp_max_syn_backlog' ;;
    *) return 1 ;;
    esac
    [[ $2 =~ ^$pattern$ && $2/ != */../* && $2/ != */./* ]]
}

# lost_with PATH: the settings that the kernel makes anew when PATH is changed, a line each: those of
# a queue with its scheduler.
lost_with() {
    local queue=${1%/scheduler} file files=()
    [[ $1 == */queue/scheduler ]] || return 0
    for file in "$root$queue"/iosched/*; do
        # The last of them first, and all of them in front of nr_requests: the other way round, as
        # revert goes, a setting comes behind what sets it along (async_depth behind nr_requests,
        # slice_idle_us behind the coarser slice_idle).
        [ ! -f "$file" ] || files=("${file#"$root"}" "${files[@]}")
    done
    [ ! -f "$root$queue/nr_requests" ] || files+=("$queue/nr_requests")
    [ ${#files[@]} = 0 ] || printf '%s\n' "${files[@]}"
}

# find_lost PATH: sets lost to the places in the record of such settings.
find_lost() {
    local place queue=${1%/scheduler}
    lost=()
    [[ $1 == */queue/scheduler ]] || return 0
    for place in "${!state_paths[@]}"; do
        case ${state_paths[place]} in
        "$queue/nr_requests" | "$queue/iosched/"*) lost+=("$place") ;;
        esac
    done
}

# same PATH ONE OTHER: whether two values of a setting are the same. The kernel writes a mask of
# cores with as many digits as there may be cores, and a comma after each eight of them.
same() {
    local one=$2 other=$3
    if [[ $1 == */rps_cpus ]]; then
        one=${one//,/} other=${other//,/}
        one=${one#"${one%%[!0]*}"} other=${other#"${other%%[!0]*}"}
    fi
    [ "$one" = "$other" ]
}

# only_ours PATH MAY: ends the script where someone else can have written a file or changed a
# folder. MAY is `shared` for the folders above the record's, which may be root's, and may be for
# all to write where nobody can rename what is another's (the sticky bit, as of /tmp).
only_ours() {
    local owner mode
    if [ -L "$1" ]; then fail 1 "$1 is a symbolic link, and a record is not looked for behind one"; fi
    read -r owner mode < <(stat -c '%u %a' -- "$1")
    [ -n "${mode:-}" ] || fail 1 "$1 cannot be looked at"
    if [ "$owner" != "$EUID" ] && { [ "$2" != shared ] || [ "$owner" != 0 ]; }; then
        fail 1 "$1 belongs to user $owner, and a record of changes has to be of user $EUID alone"
    fi
    if ((8#$mode & 8#022)) && { [ "$2" != shared ] || ! ((8#$mode & 8#1000)); }; then
        fail 1 "$1 can be written by others (mode $mode), and a record of changes by user $EUID alone"
    fi
}

# Makes the record's folder where it is missing, and makes sure that it is the caller's alone. Sets
# state_folder, and state to the record in it. Locks it, which keeps two of these scripts apart until
# the script ends.
lock_state() {
    local folder above
    folder=$(dirname -- "$state")
    if [ ! -e "$folder" ] && [ ! -L "$folder" ]; then
        mkdir -m 0700 -- "$folder" || fail 1 "the folder of $state cannot be made"
    fi
    [ ! -L "$folder" ] || fail 1 "$folder is a symbolic link, and a record is not looked for behind one"
    state_folder=$(cd -P -- "$folder" && pwd) || fail 1 "$folder is no folder"
    only_ours "$state_folder" alone
    # Whoever can rename a folder above can put another in its place.
    above=$state_folder
    while [ -n "$above" ]; do
        above=${above%/*}
        only_ours "${above:-/}" shared
    done
    state=${state_folder%/}/${state##*/}
    folder=$state_folder
    command -v flock >/dev/null || return 0
    { exec 9<"$folder"; } 2>/dev/null || fail 1 "$folder cannot be read"
    flock -n 9 || fail 1 "another tuning script is at work on $folder"
}

# Reads the record into state_items, state_paths, state_old and state_new, and its boot into
# state_boot. A last line that was cut off is left out: its change was not made. Whatever else is
# not understood ends the script, before anything is changed.
read_state() {
    local line number=0 item path old new rest ended
    state_boot='' state_items=() state_paths=() state_old=() state_new=()
    [ -e "$state" ] || [ -L "$state" ] || return 0
    only_ours "$state" alone
    [ -f "$state" ] && [ -r "$state" ] || fail 1 "$state cannot be read"
    while ended=0; IFS= read -r line || ended=1; do
        [ $ended = 0 ] || [ -n "$line" ] || break
        number=$((number + 1))
        if [ $ended = 1 ] && [ $number -gt 1 ]; then
            echo "$state: line $number was cut off; its change was not made" >&2
            break
        fi
        case $number in
        1) [ "$line" = "$state_form" ] || fail 1 "$state is no record of tuning/apply (line 1); nothing was changed" ;;
        2) [[ $line =~ ^boot\ [0-9A-Za-z-]+$ ]] || fail 1 "$state: line 2 names no boot; nothing was changed"
            state_boot=${line#boot } ;;
        *)
            # An empty value between two tabs would be lost to `read`.
            rest=$line item=${rest%%$'\t'*} rest=${rest#*$'\t'} path=${rest%%$'\t'*} rest=${rest#*$'\t'}
            old=${rest%%$'\t'*} new=${rest#*$'\t'}
            if [[ $line != "$item"$'\t'"$path"$'\t'"$old"$'\t'"$new" || $new == *$'\t'* ||
                ! $item =~ ^[a-z-]+$ ]]; then
                fail 1 "$state: line $number is not understood; nothing was changed"
            fi
            can_change "$item" "$path" ||
                fail 1 "$state: line $number: tuning/apply never changes $path for $item; nothing was changed"
            state_items+=("$item") state_paths+=("$path") state_old+=("$old") state_new+=("$new") ;;
        esac
        [ $ended = 0 ] || break
    done <"$state"
    [ $number -ge 1 ] || fail 1 "$state is empty, and no record of tuning/apply; nothing was changed"
}

remove_state() { rm -f -- "$state"; }

# Writes the record anew, as a whole; removes it where nothing is left.
write_state() {
    local n new
    if [ ${#state_paths[@]} = 0 ]; then
        remove_state
        return
    fi
    # Under a name that is new, and for the caller alone.
    new=$(mktemp -- "${state_folder%/}/tuning.XXXXXXXX") || fail 1 "$state cannot be written"
    {
        printf '%s\nboot %s\n' "$state_form" "$state_boot"
        for n in "${!state_paths[@]}"; do
            printf '%s\t%s\t%s\t%s\n' "${state_items[n]}" "${state_paths[n]}" "${state_old[n]}" "${state_new[n]}"
        done
    } >"$new" && sync -- "$new" && mv -- "$new" "$state" && sync -- "$state_folder" || {
        rm -f -- "$new"
        fail 1 "$state cannot be written"
    }
}

# forget N: takes a change out of the record in memory.
forget() {
    unset "state_items[$1]" "state_paths[$1]" "state_old[$1]" "state_new[$1]"
}

# put PATH VALUE: writes a setting; false where the kernel refuses it. Sets put_error to its words.
put() { put_error=$({ printf '%s\n' "$2" >"$root$1"; } 2>&1); }

# Ends the script where it may not change the machine.
need_root() {
    [ "$(id -u)" = 0 ] || [ -n "$root" ] || fail 1 "changes settings of the kernel: run it as root (sudo $0)"
}
