#include "fabric/live/state_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/system/process.h"

namespace plugfest::live {
namespace {

using nlohmann::json;

constexpr std::string_view kRecord = ".fabric";
constexpr std::string_view kSocket = ".socket";
constexpr std::string_view kTurn = ".turn";      // locked by the run whose turn it is, and contains its process id
constexpr std::string_view kTopology = ".yaml";  // topology::named() requires this extension
constexpr std::size_t kMaxNameLength = 64;

std::string file_of(std::string_view name, std::string_view kind) { return fmt::format("{}{}", name, kind); }

// The runtime folder of the user's session, if the user owns it.
std::string runtime_folder() {
  const char* given = std::getenv("XDG_RUNTIME_DIR");
  struct stat status = {};
  if (given != nullptr && given[0] == '/' && stat(given, &status) == 0 && S_ISDIR(status.st_mode) &&
      status.st_uid == geteuid())
    return fmt::format("{}/plugfest", given);
  return fmt::format("/tmp/plugfest-{}", geteuid());
}

// Replaces the content of a file.
void overwrite(int fd, const std::string& text, const std::string& path) {
  if (ftruncate(fd, 0) != 0 || !write_all(fd, text)) throw_file_error(path, "write");
}

Record parse(const std::string& name, const std::string& text) {
  Record record;
  try {
    const json object = json::parse(text);
    record.specification = object.at("specification");
    record.topology = object.at("topology");
    record.out_of_band = object.at("out_of_band");
    record.reduction = object.value("reduction", false);  // keepers of earlier versions write none
    record.keeper = object.at("keeper");
    record.since = object.at("since");
  } catch (const json::exception&) {
    record = {};
    record.problem = text.empty() ? kBeingBuilt : "its record is damaged";
  }
  record.name = name;
  return record;
}

// Whether the open file still has this name in the folder. It may have been removed before this process got the lock.
bool is_linked(int folder, const std::string& file, int fd) {
  struct stat here = {};
  struct stat there = {};
  return fstat(fd, &here) == 0 && fstatat(folder, file.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

bool is_valid_name(std::string_view name) {
  const auto is_good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-:,=").find(c) != std::string_view::npos;
  };
  const bool begins_well = !name.empty() && std::string_view("._-:,=").find(name[0]) == std::string_view::npos;
  return begins_well && name.size() <= kMaxNameLength && std::all_of(name.begin(), name.end(), is_good);
}

}  // namespace

void check_name(std::string_view name) {
  if (!is_valid_name(name)) {
    std::string shown;
    for (const char c : name.substr(0, kMaxNameLength)) shown += c >= ' ' && c <= '~' ? c : '?';
    throw std::runtime_error(
        fmt::format("invalid fabric name \"{}\": expected a letter or digit, then letters, digits and . _ - : , = , "
                    "at most {} characters",
                    shown, kMaxNameLength));
  }
}

StateFolder::StateFolder()
    : StateFolder([] {
        std::string path = runtime_folder();
        if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
          throw_file_error(path, "create the folder for background fabrics");
        return path;
      }()) {}

std::optional<StateFolder> StateFolder::existing() {
  std::string path = runtime_folder();
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0 && errno == ENOENT) return std::nullopt;
  return StateFolder(std::move(path));
}

StateFolder::StateFolder(std::string path) : path_(std::move(path)) {
  folder_ = Descriptor(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status = {};
  if (folder_.get() < 0 || fstat(folder_.get(), &status) != 0)
    throw_file_error(path_, "open the folder for background fabrics");
  if (status.st_uid != geteuid() || (status.st_mode & 077) != 0)
    throw std::runtime_error(fmt::format(
        "{}: other users have access: remove it, or set XDG_RUNTIME_DIR to a folder that only you can access", path_));
}

Claim StateFolder::claim(const std::string& name) const {
  check_name(name);
  const std::string file = file_of(name, kRecord);
  for (;;) {
    Claim claim;
    claim.lock = Descriptor(openat(folder_.get(), file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (claim.lock.get() < 0) throw_file_error(fmt::format("{}/{}", path_, file), "open");
    if (flock(claim.lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (flock(claim.lock.get(), LOCK_SH | LOCK_NB) == 0) continue;  // find() examines the record now
      const Record record = parse(name, content_of(claim.lock.get()));
      throw std::runtime_error(fmt::format("fabric {} is up already ({}): run {} fabric down {}, or use another name",
                                           name, record.topology.empty() ? "being built" : record.topology,
                                           program_as_typed(), name));
    }
    if (!is_linked(folder_.get(), file, claim.lock.get())) continue;
    if (const std::string left = content_of(claim.lock.get()); !left.empty()) claim.stale = parse(name, left);
    unlinkat(folder_.get(), file_of(name, kSocket).c_str(), 0);
    unlinkat(folder_.get(), file_of(name, kTopology).c_str(), 0);
    return claim;
  }
}

void StateFolder::write(const Claim& claim, Record& record, const std::string& topology_text) const {
  record.specification = record.topology;
  if (!topology_text.empty()) {
    const std::string file = file_of(record.name, kTopology);
    const Descriptor copy(
        openat(folder_.get(), file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    record.specification = fmt::format("{}/{}", path_, file);
    if (copy.get() < 0) throw_file_error(record.specification, "write");
    overwrite(copy.get(), topology_text, record.specification);
  }
  const json object = {{"topology", record.topology},       {"specification", record.specification},
                       {"out_of_band", record.out_of_band}, {"reduction", record.reduction},
                       {"keeper", record.keeper},           {"since", record.since}};
  overwrite(claim.lock.get(), object.dump() + '\n', fmt::format("{}/{}", path_, file_of(record.name, kRecord)));
}

void StateFolder::remove(const std::string& name) const noexcept {
  for (const std::string_view kind :
       {kSocket, kTurn, kTopology, kRecord})  // the record last, because its lock protects the name
    unlinkat(folder_.get(), (name + std::string(kind)).c_str(), 0);
  remove_if_empty();
}

void StateFolder::remove_if_empty() const noexcept { rmdir(path_.c_str()); }

std::optional<Record> StateFolder::find(const std::string& name, std::optional<Record>* stale) const {
  check_name(name);
  const std::string file = file_of(name, kRecord);
  const Descriptor fd(openat(folder_.get(), file.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) return std::nullopt;
  // The owner of the name holds the lock exclusively. Other processes that examine the record hold it shared.
  if (flock(fd.get(), LOCK_SH | LOCK_NB) != 0) return parse(name, content_of(fd.get()));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  if (!is_linked(folder_.get(), file, fd.get())) return std::nullopt;
  if (stale != nullptr) *stale = parse(name, content_of(fd.get()));
  remove(name);
  return std::nullopt;
}

std::vector<std::string> StateFolder::names() const {
  const auto close_folder = [](DIR* folder) { closedir(folder); };
  const std::unique_ptr<DIR, decltype(close_folder)> folder(opendir(path_.c_str()), close_folder);
  std::vector<std::string> names;
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    const std::string_view file = entry->d_name;
    if (!file.ends_with(kRecord)) continue;
    const std::string_view name = file.substr(0, file.size() - kRecord.size());
    if (is_valid_name(name)) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Descriptor StateFolder::take_turn(const Record& record, const std::function<void(pid_t)>& on_wait) const {
  const std::string file = file_of(record.name, kTurn), path = fmt::format("{}/{}", path_, file);
  for (;;) {
    Descriptor turn(openat(folder_.get(), file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (turn.get() < 0) throw_file_error(path, "open");
    if (flock(turn.get(), LOCK_EX | LOCK_NB) != 0) {
      on_wait(static_cast<pid_t>(std::strtol(content_of(turn.get()).c_str(), nullptr, 10)));
      while (flock(turn.get(), LOCK_EX) != 0)
        if (errno != EINTR) throw_file_error(path, "lock");
    }
    const std::optional<Record> now = find(record.name);
    const bool linked = is_linked(folder_.get(), file, turn.get());
    if (!now || now->keeper != record.keeper) {
      if (!now && linked) unlinkat(folder_.get(), file.c_str(), 0);
      throw std::runtime_error(fmt::format("fabric {} was removed before this run's turn", record.name));
    }
    if (!linked) continue;
    overwrite(turn.get(), fmt::format("{}\n", getpid()), path);
    return turn;
  }
}

std::string StateFolder::socket_path(const std::string& name) const {
  return fmt::format("/proc/self/fd/{}/{}", folder_.get(), file_of(name, kSocket));
}

}  // namespace plugfest::live
