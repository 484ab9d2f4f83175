# Unpacks Debian's packages into the current folder: `. debian.sh; unpack PACKAGE…`. Nothing is installed.
#
# Asks apt with lists and a cache of its own, so that nothing of the machine's changes. `contrib` is a section that most
# machines leave out. `unpack` downloads packages with what they depend on and the machine lacks.
set -e
if [ -e .git ]; then
    echo "packaging/debian.sh: this is a repository; unpack into a folder of its own" >&2
    exit 1
fi
mkdir -p lists/partial cache/archives/partial
apt-get indextargets --format '$(ORIGIN) deb $(REPO_URI) $(RELEASE) main contrib' 'Created-By: Packages' |
    sed -n 's/^Debian //p' | sort -u > sources.list
apt() {
    apt-get -q -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Debug::NoLocking=true \
        -o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD/cache" "$@"
}
unpack() {
    apt update
    apt install --yes --reinstall --download-only --no-install-recommends "$@"
    for it in cache/archives/*.deb; do dpkg -x "$it" .; done
    rm -r lists cache
}
