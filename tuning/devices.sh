# shellcheck shell=bash
# What of the store's folder, its disks, the network cards and the interrupts of both matters to
# RingMQ. Every function finds its items with `found`; none changes anything.

# Sets store, the first folder from the given one up that there is, and of its file system
# mount_point, mount_options, mount_type, mount_source and mount_numbers.
find_store() {
    store=$1
    while [ ! -e "$store" ]; do store=$(dirname -- "$store"); done
    local real mounts numbers point options rest type source super
    real=$(cd -P -- "$store" 2>/dev/null && pwd) || real=$store
    mount_point='' mount_options='' mount_type='' mount_source='' mount_numbers=''
    get mounts /proc/self/mountinfo
    while read -r _ _ numbers _ point options rest; do
        [ -n "$options" ] || continue
        printf -v point '%b' "${point//\\/\\0}"
        # The longest that the folder is below; of several at one place, the last hides the others.
        [[ ${real%/}/ == "${point%/}"/* ]] || continue
        [ ${#point} -ge ${#mount_point} ] || continue
        read -r type source super <<<"${rest#*- }"
        mount_point=$point mount_options=$options,$super mount_type=$type
        mount_source=$source mount_numbers=$numbers
    done <<<"$mounts"
}

examine_store() {
    if [ ! -d "$store" ]; then
        found store need "$store is no folder" 'a folder' 'the store is one' 'does not start'
    elif [ ! -w "$store" ] || [ ! -x "$store" ]; then
        found store need "$store cannot be written by $(id -un 2>/dev/null || id -u)" \
            'a folder of the user that RingMQ runs as' 'the store is made there' 'does not start'
    else
        found store ok "$store"
    fi

    local is="${mount_type:-unknown} at ${mount_point:-?}"
    case $mount_type in
    tmpfs | ramfs)
        found file-system like "$is" 'ext4 or xfs on a device' 'this one is gone after a restart' \
            'messages are lost' ;;
    btrfs)
        # With nodatacow blocks are overwritten in place, and have no checksums.
        if [[ ,$mount_options, == *,nodatacow,* ]]; then
            found file-system ok "$is"
        else
            found file-system like "$is" \
                'ext4 or xfs; or else nodatacow (chattr +C on the folder of the store while it is empty)' \
                'copy-on-write: the log is not written to what was filled ahead, and each write makes checksums anew' \
                "longer promises, and segments in pieces ($unmeasured)"
        fi ;;
    zfs)
        found file-system like "$is" 'ext4 or xfs; or else zfs 2.3 with a recordsize near that of the writes' \
            'copy-on-write with checksums of whole records; before 2.3 O_DIRECT is accepted and means nothing' \
            "longer promises, and the log a second time in the ARC ($unmeasured)" ;;
    bcachefs)
        found file-system like "$is" 'ext4 or xfs' \
            'copy-on-write: the log is not written to what was reserved and filled ahead' \
            "longer promises, and segments in pieces ($unmeasured)" ;;
    overlay | nfs* | fuse* | 9p | virtiofs | cifs | ceph)
        found file-system like "$is" 'a volume with ext4 or xfs' \
            'direct I/O is uncertain; without it writes go through the page cache' \
            "longer pauses under load ($unmeasured)" ;;
    *) found file-system ok "$is" ;;
    esac

    local options=",$mount_options," bad='' better=''
    case $options in
    *,nobarrier,* | *,barrier=0,*)
        bad+='nobarrier ' better+='barriers: without them SYNC_FLUSH promises what a power loss takes; ' ;;
    esac
    case $options in *,sync,*) bad+='sync ' better+='async: every write waits for the device; ' ;; esac
    case $options in *,data=journal,*) bad+='data=journal ' better+='data=ordered: all is written twice; ' ;; esac
    case $options in *,discard,*) bad+='discard ' better+='fstrim.timer: a deleted segment is trimmed at once; ' ;; esac
    case $options in
    *,noatime,* | *,relatime,* | *,ro,*) ;;
    *) bad+='atime ' better+='noatime: each read of a file becomes a write; ' ;;
    esac
    if [ -n "$bad" ] && [ -n "$mount_type" ]; then
        found mount-options like "${bad% }" "${better%; }" 'in /etc/fstab, from the next mount on' \
            "pauses ($unmeasured)"
    else
        found mount-options ok "${mount_options:-unknown}"
    fi
    examine_free_space
}

examine_free_space() {
    local size free tails=$((16 * shards))
    read -r size free < <(df -Pk -- "$store" 2>/dev/null | { read -r _; read -r _ size _ free _; echo "$size $free"; })
    if ! [[ $size =~ ^[0-9]+$ && $free =~ ^[0-9]+$ ]]; then
        found free-space ok unknown
        return
    fi
    size=$((size / 1024)) free=$((free / 1024))
    if [ $free -lt $tails ] && [ ! -e "$store/tail" ]; then
        found free-space need "$free MiB" "$tails MiB: tailFileBytes of each shard" \
            'the tail file is reserved at the start' 'does not start'
    elif [ $free -lt $((2048 * shards)) ]; then
        found free-space like "$free MiB" "$((2048 * shards)) MiB: two segments of each shard" \
            'the next segment is reserved ahead' 'sends are refused when there is no space'
    elif [ $((free * 4)) -lt $size ]; then
        found free-space like "$free of $size MiB" 'a quarter of the file system' \
            'above diskMaxUsedSpaceRatio (75 %) old messages are deleted at any hour' \
            'messages are kept for less time'
    else
        found free-space ok "$free of $size MiB"
    fi
}

# Sets disks: folders below /sys of the whole devices that the store is on.
find_disks() {
    disks=()
    local name=${mount_source##*/} folder
    folder=$(cd -P -- "$root/sys/dev/block/$mount_numbers" 2>/dev/null && pwd) ||
        folder=$(cd -P -- "$root/sys/class/block/$name" 2>/dev/null && pwd) || return
    add_disks "$folder"
}

# Takes a device apart: a partition is of its disk, a volume or an array of several.
add_disks() {
    local folder=$1 below lower=0
    if [ -e "$folder/partition" ]; then folder=${folder%/*}; fi
    for below in "$folder"/slaves/*; do
        [ -e "$below" ] || continue
        lower=1
        add_disks "$(cd -P -- "$below" && pwd)"
    done
    [ $lower = 1 ] || has "$folder" "${disks[*]}" || disks+=("$folder")
}

# setting VARIABLE FOLDER NAME: a queue setting of a disk, and its path in `path`.
setting() {
    path=${2#"$root"}/queue/$3
    current "$1" "$path"
}

examine_disks() {
    if [ ${#disks[@]} = 0 ]; then
        found disk ok 'not visible'
        return
    fi
    local disk name path value offered wanted hypervisor=0
    local rotating='' plain=0 all='' slow='' ahead='' far='' caches='' volatile='' short='' depths='' apart='' affinity=''
    local wanted_schedulers='' wanted_ahead=''
    grep -qm1 '^flags.* hypervisor' "$root/proc/cpuinfo" 2>/dev/null && hypervisor=1
    for disk in "${disks[@]}"; do
        name=${disk##*/}
        setting value "$disk" rotational
        if [ "$value" = 1 ] && [ $hypervisor = 0 ]; then rotating+="$name "; else plain=1; fi
        # Of virtual disks `rotational` says nothing: it is what the host left there.
        if setting value "$disk" scheduler; then
            all+="$name: $value "
            get offered "$path"
            wanted=none
            if has "$name" "$rotating"; then wanted=mq-deadline; fi
            if [[ $value != none && $value != mq-deadline ]] && has "$wanted" "${offered//[\[\]]/ }"; then
                slow=1 wanted_schedulers+="$name: $wanted "
                change "$path" "$wanted"
            fi
        fi
    done
    if [ -n "$slow" ]; then
        found scheduler like "${all% }" "${wanted_schedulers% }" \
            'writes are few, large and in order already; others sort them at a cost' \
            "a shorter way to the device ($unmeasured)"
    else
        found scheduler ok "${all:-none}"
    fi
    if [ -n "$rotating" ]; then
        found disk like "${rotating% } rotates" 'flash' \
            'a promise of SYNC_FLUSH waits for a turn of the disk' 'some ms a flush'
    elif [ $plain = 1 ]; then
        found disk ok "${disks[*]##*/}$([ $hypervisor = 0 ] || echo ' (of a virtual machine)')"
    fi

    for disk in "${disks[@]}"; do
        name=${disk##*/}
        if setting value "$disk" read_ahead_kb; then
            ahead+="$name: $value KiB "
            wanted=
            [ "$value" -le 4096 ] || wanted=1024
            [ "$value" -ge 128 ] || wanted=128
            if [ -n "$wanted" ]; then
                far=1 wanted_ahead+="$name: $wanted KiB "
                change "$path" "$wanted"
            fi
        fi
    done
    if [ -n "$far" ]; then
        found read-ahead like "${ahead% }" "${wanted_ahead% }" \
            'queue and index files are read by way of the page cache; too much read ahead is thrown away' \
            "reads of consumers that lag ($unmeasured)"
    else
        found read-ahead ok "${ahead:-unknown}"
    fi

    for disk in "${disks[@]}"; do
        name=${disk##*/}
        if setting value "$disk" write_cache; then
            caches+="$name: $value"
            wanted=$value
            if setting value "$disk" fua; then
                caches+=", fua $value"
                [ "$wanted/$value" != 'write back/0' ] || volatile+="$name "
            fi
            caches+=' '
        fi
        if setting value "$disk" nr_requests; then
            depths+="$name: $value "
            [ "$value" -ge 64 ] || short=1
        fi
        if setting value "$disk" rq_affinity; then
            affinity+="$name: $value "
            if [ "$value" = 0 ]; then
                apart=1
                change "$path" 1
            fi
        fi
    done
    if [ -n "$apart" ]; then
        found rq-affinity like "${affinity% }" 1 \
            'the completion of a write goes to the core group of the shard that asked for it' \
            "fewer cache misses ($unmeasured)"
    else
        found rq-affinity ok "${affinity:-unknown}"
    fi
    if [ -n "$short" ]; then
        found nr-requests like "${depths% }" '64 or more' 'reads of consumers that lag share the queue' \
            "such reads ($unmeasured)"
    else
        found nr-requests ok "${depths:-unknown}"
    fi
    # With FUA a promise is that of the write alone, and without a cache each write is one.
    if [ -n "$volatile" ]; then
        found write-cache like "${caches% }" \
            'a device with FUA, or with a cache that outlasts a power loss (it says write through by itself)' \
            'volatile, and no write passes it: a promise of SYNC_FLUSH empties all of it, with what others wrote' \
            "each promise takes a full flush of the cache (ringmq tune io tells how long)"
    else
        found write-cache ok "${caches:-unknown}"
    fi
}

# Sets watcher to 1 where irqbalance runs.
find_irqbalance() {
    local path name
    watcher=0
    for path in "$root"/proc/[0-9]*/comm; do
        { read -r name <"$path"; } 2>/dev/null || continue
        if [ "$name" = irqbalance ]; then
            watcher=1
            return
        fi
    done
}

# Whether the kernel alone places an interrupt (NUMBER NAME), as it does where a driver has asked for
# a queue a core (managed interrupts). Such files refuse to be written, and since Linux 6.12 their
# mode says so; before, only the drivers are known: nvme, and virtio's disks.
is_managed() {
    local mode
    [[ ! $2 =~ ^(nvme[0-9]+q[1-9][0-9]*|virtio[0-9]+-(req\.[0-9]+|request))$ ]] || return 0
    mode=$(stat -c %A -- "$root/proc/irq/$1/smp_affinity_list" 2>/dev/null)
    [[ $mode == ?r-* ]]
}

# interrupts VARIABLE FOLDER: numbers of the interrupts of a device's queues, from the folder of
# the device or of one that it hangs on. Adds those that the kernel alone places to managed.
interrupts() {
    local _folder=$2 _path _asker _number _name _list=''
    while [ ! -d "$_folder/msi_irqs" ]; do
        _folder=${_folder%/*}
        if [ "$_folder" = "$root" ] || [ -z "$_folder" ]; then break; fi
    done
    for _path in "$_folder"/msi_irqs/*; do
        _number=${_path##*/} _name=''
        [ -d "$root/proc/irq/$_number" ] || continue
        # A folder there is named as the one who asked for the interrupt.
        for _asker in "$root/proc/irq/$_number"/*/; do
            _asker=${_asker%/}
            _name+=${_asker##*/}
        done
        case $_name in
        '' | '*' | *config* | *event* | *async* | *control*) continue ;;
        esac
        # Questions to the device, not messages.
        [[ ! $_name =~ ^nvme[0-9]+q0$ ]] || continue
        _list+="$_number "
        if is_managed "$_number" "$_name"; then managed+="$_number "; fi
    done
    printf -v "$1" '%s' "${_list% }"
}

# examine_interrupts NAME KIND FOLDER...: where the interrupts of devices are served. Where a core
# has no shard, they belong there; where each has one, each should have its part.
examine_interrupts() {
    local item=$1 kind=$2 folder numbers number cpu path all='' used='' moved=0 next=0 targets=() free=() managed=''
    shift 2
    for cpu in $cpus; do
        has "$cpu" "$shard_cpus" || free+=("$cpu")
    done
    for folder in "$@"; do
        interrupts numbers "$folder"
        all+="$numbers "
    done
    # shellcheck disable=SC2086
    set -- $all
    if [ $# = 0 ]; then
        found "$item" ok 'not visible'
        return
    fi
    if [ ${#free[@]} -gt 0 ]; then
        targets=("${free[@]}")
    else
        # shellcheck disable=SC2206
        targets=($shard_cpus)
    fi
    local places='' kept='' served first='' same=1 is
    for number in "$@"; do
        path=/proc/irq/$number
        get served "$path/effective_affinity_list" || get served "$path/smp_affinity_list" || continue
        if has "$number" "$managed"; then
            kept+="$number on $served, "
            continue
        fi
        places+="$number on $served, "
        first=${first:-$served}
        [ "$served" = "$first" ] || same=0
        expand used "$served"
        cpu=${targets[next % ${#targets[@]}]}
        next=$((next + 1))
        if [ ${#free[@]} -gt 0 ]; then
            if [[ ! " ${free[*]} " == *" $used "* ]]; then
                moved=1
                change "$path/smp_affinity_list" "$cpu"
            fi
        else
            change "$path/smp_affinity_list" "$cpu"
        fi
    done
    # All of several on one core, while every core has a shard.
    if [ ${#free[@]} = 0 ] && [ $next -gt 1 ] && [ ${#targets[@]} -gt 1 ]; then moved=$same; fi
    [ "$watcher" = 0 ] || pending_changes=
    is=${places%, }
    [ -z "$kept" ] || is+="${is:+; }${kept%, } (placed by the kernel itself, which lets nobody move them)"
    if [ $moved = 1 ]; then
        local better="core ${targets[*]}"
        [ "$watcher" = 0 ] || better+=', kept from irqbalance (IRQBALANCE_BANNED_CPULIST)'
        found "$item" like "$is" "$better" \
            "interrupts of the $kind take time of the shard on their core" \
            "latency of that shard ($unmeasured)"
    else
        pending_changes=
        found "$item" ok "$is"
    fi
}

examine_cards() {
    local card name queue path value folders=() queues='' narrow='' mask
    cores_mask mask
    for card in "$root"/sys/class/net/*; do
        [ -e "$card/device" ] || continue
        name=${card##*/}
        folders+=("$(cd -P -- "$card/device" && pwd)")
        set -- "$card"/queues/rx-*
        [ -e "$1" ] || set --
        queues+="$name: $# "
        [ $(($# * 4)) -le "$cpu_count" ] || continue
        for queue in "$@"; do
            path=${queue#"$root"}/rps_cpus
            if get value "$path" && [[ $value =~ ^[0,]*$ ]]; then
                has "$name" "$narrow" || narrow+="$name "
                change "$path" "$mask"
            fi
        done
    done
    if [ -n "$narrow" ]; then
        found rps like "receive queues: ${queues% }, for $cpu_count cores and without RPS" \
            'rps_cpus of all cores, or a card with a queue a core' \
            'as many cores as there are queues do the network of all shards' \
            "throughput from there on ($unmeasured)"
    else
        found rps ok "receive queues: ${queues:-no card visible}"
    fi
    if [ ${#folders[@]} -gt 0 ]; then
        examine_interrupts nic-irqs 'network card' "${folders[@]}"
    else
        found nic-irqs ok 'not visible'
    fi
    examine_card_settings
}

# cores_mask VARIABLE: all cores as the kernel reads a mask: 32 of them a number, the last first.
cores_mask() {
    local _cpu _parts=() _part _text=''
    for _cpu in $cpus; do
        _part=$((_cpu / 32))
        while [ ${#_parts[@]} -le $_part ]; do _parts+=(0); done
        _parts[_part]=$((_parts[_part] | 1 << _cpu % 32))
    done
    for ((_part = ${#_parts[@]} - 1; _part >= 0; _part--)); do
        if [ -z "$_text" ]; then
            printf -v _text '%x' "${_parts[_part]}"
        else
            printf -v _text '%s,%08x' "$_text" "${_parts[_part]}"
        fi
    done
    printf -v "$1" '%s' "$_text"
}

# Sets ethtool to the program of that name; of a tree of files only to that of the tree.
find_ethtool() {
    ethtool=
    if [ -z "$root" ]; then ethtool=$(command -v ethtool); fi
    if [ -z "$ethtool" ] && [ -x "$root/usr/sbin/ethtool" ]; then ethtool=$root/usr/sbin/ethtool; fi
}

# most_and_now NAME TEXT: of a line of ethtool's that stands there twice, sets most to what a card
# can have, and now to what it has; false where it does not say.
most_and_now() {
    local line
    most='' now=''
    while read -r line; do
        [[ $line =~ ^$1:[[:space:]]*([0-9]+)$ ]] || continue
        if [ -z "$most" ]; then most=${BASH_REMATCH[1]}; else now=${BASH_REMATCH[1]}; fi
    done <<<"$2"
    [ -n "$now" ]
}

# found_card_settings ITEM ALL BETTER WHY EFFECT: what all cards have, and the commands for what is
# better, each a list with commas, which may be empty.
found_card_settings() {
    local all=${2%, }
    if [ -n "$3" ]; then
        found "$1" like "$all" "${3%, }" "$4" "$5"
    else
        found "$1" ok "${all:-not told by the card}"
    fi
}

examine_card_settings() {
    local ethtool card name value most now wanted better='' all='' rings='' more_rings='' off=''
    find_ethtool
    if [ -z "$ethtool" ]; then
        for name in nic-queues nic-rings offloads; do found "$name" ok 'not visible without ethtool'; done
        return
    fi
    for card in "$root"/sys/class/net/*; do
        [ -e "$card/device" ] || continue
        name=${card##*/}
        if most_and_now Combined "$("$ethtool" -l "$name" 2>/dev/null)"; then
            all+="$name: $now of $most, "
            wanted=$((most < cpu_count ? most : cpu_count))
            [ "$now" -ge "$wanted" ] || better+="ethtool -L $name combined $wanted, "
        fi
        if most_and_now RX "$("$ethtool" -g "$name" 2>/dev/null)"; then
            rings+="$name: $now of $most, "
            wanted=$((most < 1024 ? most : 1024))
            [ "$now" -ge "$wanted" ] || more_rings+="ethtool -G $name rx $wanted, "
        fi
        value=$("$ethtool" -k "$name" 2>/dev/null | grep -E '^(generic-receive|tcp-segmentation)-offload: off$')
        [ -z "$value" ] || off+="$name: ${value//$'\n'/, } "
    done
    found_card_settings nic-queues "$all" "$better" \
        'as many cores as there are queues do the network of all shards' \
        "throughput from there on ($unmeasured)"
    found_card_settings nic-rings "$rings" "$more_rings" \
        'what comes while a core has other work waits there, and is dropped where there is no room' \
        "packets that are sent again, 200 ms later and more ($unmeasured)"
    if [ -n "$off" ]; then
        found offloads like "${off% }" 'ethtool -K CARD gro on tso on' \
            'a batch of messages passes the network stack in pieces' "processor time ($unmeasured)"
    else
        found offloads ok 'segmentation and receive offload'
    fi
}

# examine STORE: finds all items.
examine() {
    find_processors
    find_store "$1"
    find_disks
    find_irqbalance
    examine_kernel
    examine_rings
    examine_limits
    examine_processors
    examine_memory
    examine_store
    examine_disks
    if [ ${#disks[@]} -gt 0 ]; then
        examine_interrupts disk-irqs disk "${disks[@]}"
    else
        found disk-irqs ok 'not visible'
    fi
    if [ "$watcher" = 1 ]; then
        found irqbalance ok 'runs: interrupts are left to it'
    else
        found irqbalance ok 'does not run'
    fi
    examine_cards
    examine_network
}
