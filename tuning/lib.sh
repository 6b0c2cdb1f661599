# shellcheck shell=bash
# What the scripts have in common: reading the kernel's files, the list of items, and the program.
#
# RINGMQ_TUNING_ROOT=DIR stands in front of /proc and /sys, for tests on a tree of files.

root=
if [ -n "${RINGMQ_TUNING_ROOT:-}" ]; then
    root=$(cd -P -- "$RINGMQ_TUNING_ROOT" && pwd) || exit 2
fi

# Whose limits, rights and cgroup are looked at.
process=/proc/self

# fail CODE TEXT...: ends the script.
fail() {
    local code=$1
    shift
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit "$code"
}

# The functions that set a variable of the caller's name their own with a `_` in front.

# get VARIABLE PATH: the content of a file of the kernel without the last line's end; empty and
# false where it cannot be read.
get() {
    local _content=
    # A read without a delimiter ends in "end of file", which is no failure here.
    { IFS= read -r -d '' _content <"$root$2"; } 2>/dev/null
    _content=${_content%$'\n'}
    printf -v "$1" '%s' "$_content"
    [ -n "$_content" ]
}

# find_program VARIABLE: the program that $RINGMQ names, that of this source tree, or that of PATH,
# in this order; empty and false where there is none. Of a tree of files only $RINGMQ can tell.
find_program() {
    local _program _programs=("${RINGMQ:-}")
    if [ -z "$root" ]; then
        _programs+=("$here/../target/release/ringmq" "$here/../target/quick/ringmq" "$(command -v ringmq)")
    fi
    printf -v "$1" ''
    for _program in "${_programs[@]}"; do
        [ -f "$_program" ] && [ -x "$_program" ] || continue
        printf -v "$1" '%s' "$_program"
        return
    done
    return 1
}

# current VARIABLE PATH: the value that a setting has: of several in a line, the one in brackets.
current() {
    local _value
    get _value "$2"
    if [[ $_value =~ \[([^]]*)\] ]]; then _value=${BASH_REMATCH[1]}; fi
    printf -v "$1" '%s' "${_value//[$'\t\n']/ }"
    [ -n "$_value" ]
}

# expand VARIABLE LIST: the numbers of a list such as 0-2,5, apart by spaces.
expand() {
    local _part _parts _first _last _numbers=()
    IFS=, read -ra _parts <<<"$2"
    for _part in "${_parts[@]}"; do
        [[ $_part =~ ^[0-9]+(-[0-9]+)?$ ]] || continue
        _first=${_part%-*} _last=${_part#*-}
        while [ "$_first" -le "$_last" ]; do
            _numbers+=("$_first")
            _first=$((_first + 1))
        done
    done
    printf -v "$1" '%s' "${_numbers[*]}"
}

# has WORD LIST: whether a word is one of a list apart by spaces.
has() { [[ " $2 " == *" $1 "* ]]; }

# One element an item, in the order of their finding.
item_names=() item_marks=() item_is=() item_better=() item_why=() item_effect=() item_changes=()
# What would make the next item better: lines of PATH, a tab, VALUE.
pending_changes=

# change PATH VALUE: what apply may do for the item that is found next.
change() { pending_changes+="$1"$'\t'"$2"$'\n'; }

# found NAME need|like|ok IS [BETTER WHY EFFECT]
found() {
    item_names+=("$1") item_marks+=("$2") item_is+=("${3% }")
    item_better+=("${4:-}") item_why+=("${5:-}") item_effect+=("${6:-}")
    if [ "$2" = like ]; then
        item_changes+=("$pending_changes")
    else
        item_changes+=('')
    fi
    pending_changes=
}
