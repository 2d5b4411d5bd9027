# Reads the first spec, and makes its period and disks the arguments of the fallback script, which is appended here.
while IFS= read -r line; do
    case $line in "{"*) break ;; esac
done
eval "set -- $(printf '%s\n' "$line" | awk -v quote="'" '
{
    period = 2
    if (match($0, /"period":[0-9.]+/)) period = substr($0, RSTART + 9, RLENGTH - 9)
    printf "%s", period
    from = index($0, "\"disks\":[")
    if (!from) exit
    rest = substr($0, from + 9)
    while (substr(rest, 1, 1) == "\"") {
        word = ""
        rest = substr(rest, 2)
        while ((c = substr(rest, 1, 1)) != "\"" && c != "") {
            if (c == "\\") { rest = substr(rest, 2); c = substr(rest, 1, 1) }
            word = word (c == quote ? quote "\\" quote quote : c)
            rest = substr(rest, 2)
        }
        printf " %s%s%s", quote, word, quote
        rest = substr(rest, substr(rest, 2, 1) == "," ? 3 : 2)
    }
}')"
