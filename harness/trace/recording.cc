#include "harness/trace/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <unordered_map>

#include "fabric/system/file.h"

namespace plugfest::trace {
namespace {

// The text of an array that should end with a zero.
template <std::size_t N>
std::string text_of(const char (&characters)[N]) {
  return {characters, ::strnlen(characters, N)};
}

bool is_time(std::int64_t ns) { return ns >= 0 && ns < kTimeLimitNs; }

void add_attribute(Attributes& attributes, const Record& record) {
  const auto key = static_cast<Key>(record.key);
  if (record.kind == RecordKind::kNumber) attributes.numbers.emplace_back(key, record.value);
  if (record.kind != RecordKind::kText) return;
  char part[17] = {};
  std::memcpy(part, &record.time_ns, 8);
  std::memcpy(part + 8, &record.value, 8);
  if (attributes.texts.empty() || attributes.texts.back().first != key) attributes.texts.emplace_back(key, "");
  attributes.texts.back().second += part;
}

}  // namespace

std::int64_t Attributes::number(Key key, std::int64_t otherwise) const {
  for (const auto& [name, value] : numbers)
    if (name == key) return static_cast<std::int64_t>(value);
  return otherwise;
}

std::string Attributes::text(Key key) const {
  for (const auto& [name, value] : texts)
    if (name == key) return value;
  return "";
}

bool is_recording(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_file_error(path, "read");
  char magic[sizeof kRecordingMagic] = {};
  file.read(magic, sizeof magic);
  return std::memcmp(magic, kRecordingMagic, sizeof magic) == 0;
}

Recording read_recording(const std::string& path) {
  const std::string content = read_file(path);
  const auto impossible = [&](std::size_t at) {
    return std::runtime_error(fmt::format("{}: offset {}: an impossible time", path, at));
  };
  FileHeader header;
  if (content.size() < sizeof header || !content.starts_with({kRecordingMagic, sizeof kRecordingMagic}))
    throw std::runtime_error(fmt::format("{}: not a file of libnccl-profiler-plugfest.so", path));
  std::memcpy(&header, content.data(), sizeof header);
  if (!is_time(header.monotonic_ns) || !is_time(header.realtime_ns)) throw impossible(0);
  Recording recording{.path = path,
                      .host = text_of(header.host),
                      .boot_id = text_of(header.boot_id),
                      .pid = header.pid,
                      .realtime_offset_ns = header.realtime_ns - header.monotonic_ns};
  const auto each = [&](const auto& visit) {
    Record record;
    for (std::size_t at = sizeof header; at + sizeof record <= content.size(); at += sizeof record) {
      std::memcpy(&record, content.data() + at, sizeof record);
      const bool is_wait = record.kind == RecordKind::kProcessorWait;  // also its other numbers are times
      if ((record.kind != RecordKind::kText && !is_time(record.time_ns)) ||
          (is_wait &&
           (!is_time(static_cast<std::int64_t>(record.event)) || !is_time(static_cast<std::int64_t>(record.value)))))
        throw impossible(at);
      visit(record);
    }
  };
  std::unordered_map<std::uint64_t, std::size_t> indices;
  each([&](const Record& record) {
    if (record.kind == RecordKind::kProcessorWait)
      recording.processor_waits.push_back({record.communicator, static_cast<std::int64_t>(record.event), record.time_ns,
                                           static_cast<std::int64_t>(record.value)});
    if (record.kind == RecordKind::kBegin) recording.communicators[record.communicator];
    if (record.kind != RecordKind::kStart) return;
    if (!indices.emplace(record.event, recording.events.size()).second) return;
    recording.events.push_back(
        {record.event, record.value, record.key, record.communicator, record.time_ns, 0, {}, {}});
  });
  // A thread may have written the end of an event before another one wrote its start.
  each([&](const Record& record) {
    if (record.kind == RecordKind::kProcessorWait) return;
    const bool about_communicator = record.event == record.communicator;
    if (about_communicator && recording.communicators.contains(record.communicator))
      add_attribute(recording.communicators[record.communicator], record);
    const auto index = indices.find(record.event);
    if (about_communicator || index == indices.end()) return;
    RecordedEvent& event = recording.events[index->second];
    if (record.kind == RecordKind::kState)
      event.states.push_back({record.key, record.time_ns, record.value});
    else if (record.kind == RecordKind::kStop)
      event.stop_ns = std::max(event.start_ns, record.time_ns);
    else
      add_attribute(event.attributes, record);
  });
  return recording;
}

}  // namespace plugfest::trace
