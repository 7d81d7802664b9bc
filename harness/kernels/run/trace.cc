#include "harness/kernels/run/trace.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>

#include "fabric/system/process.h"
#include "harness/kernels/run/stacks.h"

namespace plugfest::kernels {
namespace {

constexpr std::size_t kMaxFrames = 32;

// Follows the chain of frames from `frame` on: each contains the address of the next one, then a return address.
void add_frames(Frames& frames, const std::byte* frame, const std::byte* stack) {
  const std::byte* const end = stack + Stacks::kBytes;
  while (frames.size() < kMaxFrames && frame >= stack && frame + 2 * sizeof(void*) <= end) {
    const std::byte* next = nullptr;
    const void* address = nullptr;
    std::memcpy(&next, frame, sizeof(next));
    std::memcpy(&address, frame + sizeof(next), sizeof(address));
    if (address == nullptr) return;
    frames.push_back(address);
    if (next <= frame) return;
    frame = next;
  }
}

// Whether a line is of a function between a kernel and its execution. Its return type may stand before its name.
bool is_machinery(std::string_view function) {
  if (function.find("/plugfest/launch.h:") != std::string_view::npos) return true;
  for (const std::string_view part :
       {"plugfest::kernels::", "plugfest_kernel", "cuda::plugfest_detail::", "__tsan_", "std::"})
    if (function.starts_with(part) || function.find(fmt::format(" {}", part)) != std::string_view::npos) return true;
  return false;
}

// The body of a kernel is a lambda, which the compiler front makes.
std::string without_lambda(std::string line) {
  constexpr std::string_view kLambda = "::{lambda()#1}::operator()()";
  if (const std::size_t at = line.find(kLambda); at != std::string::npos) line.erase(at, kLambda.size());
  return line;
}

// What addr2line says of addresses of one file: for each one the lines "FUNCTION at FILE:LINE", the innermost inline
// function first. Empty where it says nothing.
std::map<std::uintptr_t, std::vector<std::string>> lines_of(const std::string& file,
                                                            const std::vector<std::uintptr_t>& offsets) {
  std::vector<std::string> command = {"addr2line", "-C", "-f", "-i", "-p", "-a", "-e", file};
  for (const std::uintptr_t offset : offsets) command.push_back(fmt::format("{:#x}", offset));
  std::map<std::uintptr_t, std::vector<std::string>> lines;
  Finished finished;
  try {
    // The libraries that this process preloads are not for addr2line.
    finished = run_program(command, {}, [] { ::unsetenv("LD_PRELOAD"); });
  } catch (const std::exception&) {
    return lines;
  }
  std::istringstream output(finished.output);
  std::vector<std::string>* current = nullptr;
  for (std::string line; std::getline(output, line);) {
    // "0x1234: f() at a.cu:3", and for each caller of an inline function " (inlined by) g() at a.cu:9".
    constexpr std::string_view kInlined = " (inlined by) ";
    if (line.starts_with("0x")) {
      current = &lines[std::strtoull(line.c_str(), nullptr, 16)];
      line = line.substr(std::min(line.find(": ") + 2, line.size()));
    } else if (line.starts_with(kInlined)) {
      line = line.substr(kInlined.size());
    }
    if (current != nullptr && line.find("??") == std::string::npos) current->push_back(line);
  }
  return lines;
}

}  // namespace

Frames frames_of(Context context, const std::byte* stack) {
  const Saved saved = saved_by(context);
  Frames frames = {saved.next};
  add_frames(frames, saved.frame, stack);
  return frames;
}

Frames frames_of_signal(const void* ucontext, const std::byte* stack) {
  const Saved saved = interrupted(ucontext);
  // text_of_frames() takes addresses of callers, which are behind their calls.
  Frames frames = {static_cast<const std::byte*>(saved.next) + 1};
  add_frames(frames, saved.frame, stack);
  return frames;
}

Frames frames_of_caller(const std::byte* stack) {
  Frames frames;
  add_frames(frames, static_cast<const std::byte*>(__builtin_frame_address(0)), stack);
  return frames;
}

std::string text_of_frames(const Frames& frames) {
  struct Position {
    std::string file, function;
    std::uintptr_t offset = 0;
  };
  std::vector<Position> positions;
  std::map<std::string, std::vector<std::uintptr_t>> offsets;
  for (const void* const frame : frames) {
    // The address of a caller is behind its call, which may be the last instruction of the function.
    const auto address = reinterpret_cast<std::uintptr_t>(frame) - 1;
    Dl_info info{};
    if (::dladdr(reinterpret_cast<const void*>(address), &info) == 0) continue;
    positions.push_back({info.dli_fname, info.dli_sname == nullptr ? "" : info.dli_sname,
                         address - reinterpret_cast<std::uintptr_t>(info.dli_fbase)});
    offsets[info.dli_fname].push_back(positions.back().offset);
  }
  std::map<std::string, std::map<std::uintptr_t, std::vector<std::string>>> lines;
  for (const auto& [file, list] : offsets) lines[file] = lines_of(file, list);
  std::string text;
  for (const Position& position : positions) {
    std::vector<std::string> found = lines[position.file][position.offset];
    if (found.empty()) found = {fmt::format("{} of {}+{:#x}", position.function, position.file, position.offset)};
    for (const std::string& line : found)
      if (!is_machinery(line)) text += fmt::format("    in {}\n", without_lambda(line));
  }
  return text;
}

}  // namespace plugfest::kernels
