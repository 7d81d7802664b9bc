#!/bin/sh
# manual.sh PROGRAM FOLDER: writes a manual page of the program and of each subcommand, from the output of --help.
set -eu
folder=$2
mkdir -p "$folder/bin"
ln -sf "$1" "$folder/bin/plugfest" # help2man writes the name by which it calls the program
PATH=$folder/bin:$PATH

# page [SUBCOMMAND...]
page() {
  name=$(echo plugfest "$@" | tr ' ' -)
  summary=$(plugfest "$@" --help | sed '/^Usage: /,$d' | tr '\n' ' ' | sed 's/\.\? $//')
  help2man --no-info --name "$summary" --version-string "$(plugfest --version)" "plugfest${*:+ $*}" |
    sed -e "s/^\.TH PLUGFEST/.TH $(echo "$name" | tr '[:lower:]' '[:upper:]')/" -e "s/^plugfest \\\\-/$name \\\\-/" \
      | gzip -9n >"$folder/$name.1.gz"
  for subcommand in $(plugfest "$@" --help | sed -nE '/^Subcommands:/,$ s/^  ([a-z]+) .*/\1/p'); do
    page "$@" "$subcommand"
  done
}
page
rm -r "${folder:?}/bin"
