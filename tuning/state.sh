# shellcheck shell=bash
# The record of what apply changed, for revert.
#
# A file of lines: the first names the form, the second the boot that the changes are of, each
# other one is a change, in the order in which they were made:
#   ITEM <tab> PATH <tab> OLD VALUE <tab> NEW VALUE
# A line is on the device before its change is made, so that whatever interrupts apply, nothing is
# changed without its old value being known.

state_form='ringmq-tuning 1'
state_items=() state_paths=() state_old=() state_new=()

# boot_id VARIABLE: what tells this boot from others.
boot_id() { get "$1" /proc/sys/kernel/random/boot_id || printf -v "$1" unknown; }

# Locks the record's folder, which keeps two of these scripts apart until the script ends.
lock_state() {
    local folder
    folder=$(dirname "$state")
    mkdir -p "$folder" || fail 1 "the folder of $state cannot be made"
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
    [ -e "$state" ] || return 0
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
                ! $item =~ ^[a-z-]+$ || ! $path =~ ^/(proc|sys)/ || /$path/ == */../* ]]; then
                fail 1 "$state: line $number is not understood; nothing was changed"
            fi
            state_items+=("$item") state_paths+=("$path") state_old+=("$old") state_new+=("$new") ;;
        esac
        [ $ended = 0 ] || break
    done <"$state"
    [ $number -ge 1 ] || fail 1 "$state is empty, and no record of tuning/apply; nothing was changed"
}

# Writes the record anew, as a whole; removes it where nothing is left.
write_state() {
    local n
    if [ ${#state_paths[@]} = 0 ]; then
        rm -f "$state"
        return
    fi
    {
        printf '%s\nboot %s\n' "$state_form" "$state_boot"
        for n in "${!state_paths[@]}"; do
            printf '%s\t%s\t%s\t%s\n' "${state_items[n]}" "${state_paths[n]}" "${state_old[n]}" "${state_new[n]}"
        done
    } >"$state.tmp" && sync "$state.tmp" && mv "$state.tmp" "$state" && sync "$(dirname "$state")" ||
        fail 1 "$state cannot be written"
}

# forget N: takes a change out of the record in memory.
forget() {
    unset "state_items[$1]" "state_paths[$1]" "state_old[$1]" "state_new[$1]"
}

# put PATH VALUE: writes a setting; false where the kernel refuses it.
put() { { printf '%s\n' "$2" >"$root$1"; } 2>/dev/null; }

# Ends the script where it may not change the machine.
need_root() {
    [ "$(id -u)" = 0 ] || [ -n "$root" ] || fail 1 "changes settings of the kernel: run it as root (sudo $0)"
}
