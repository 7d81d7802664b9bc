// plugfest fabric pcap: captures the RoCE packets of a host in a background fabric.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "fabric/netns/packet_capture.h"
#include "fabric/system/file.h"
#include "fabric/system/text.h"
#include "harness/cli/fabric/fabric.h"
#include "harness/cli/options/fabric_selection.h"
#include "harness/cli/options/subject.h"
#include "harness/cli/stop.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::vector<std::string> words;
  std::string file;
};

Descriptor open_output(const std::string& file) {
  if (file.empty() || file == "-") {
    if (isatty(1) != 0) {
      throw std::runtime_error("fabric pcap: standard output is a terminal: add -w FILE or | tshark -r -");
    }
    return Descriptor(dup(1));
  }
  Descriptor fd(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) throw std::runtime_error(fmt::format("{}: cannot write: {}", file, std::strerror(errno)));
  return fd;
}

int capture(const Arguments& arguments) {
  FabricSelection selection = FabricSelection::of(arguments.words.size() == 2 ? arguments.words[0] : "", "");
  if (!selection.record())
    throw std::runtime_error(fmt::format("no fabric is up: run {} fabric up pair", shell_word(program_as_typed())));
  selection.require_node(arguments.words.back());
  const Descriptor output = open_output(arguments.file);
  const std::unique_ptr<bed::NicKind> nic = bed::default_nic_kind();
  if (const std::optional<int> exit_code = selection.enter(*nic)) return *exit_code;
  bed::TestBed bed = selection.build(*nic, false);
  signal(SIGPIPE, SIG_IGN);
  const std::atomic<bool>& stopped = stop_on_signals();
  netns::PacketCapture capture(bed.fabric(), arguments.words.back());
  fmt::print(stderr, "capturing at {} until Ctrl-C\n", arguments.words.back());
  netns::PacketCapture::Count count;
  try {
    count = capture.write(output.get(), stopped);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(
        fmt::format("{}: {}", arguments.file.empty() ? "standard output" : arguments.file, error.what()));
  }
  fmt::print(
      stderr, "{}{}\n", counted(count.written, "packet"),
      count.dropped == 0 ? "" : fmt::format("; {} more were lost because the output is too slow", count.dropped));
  return 0;
}

}  // namespace

void add_fabric_pcap(Command fabric) {
  auto arguments = std::make_shared<Arguments>();
  Command command = fabric.add_subcommand(
      "pcap", "Capture the RoCE packets of a host or switch",
      "Arguments: [NAME] HOST. NAME is a background fabric; default: the only one. The capture ends on Ctrl-C.");
  command.add_option("HOST", arguments->words, "Host or switch, after the fabric's name if several are up")
      .required()
      .expected(1, 2);
  command.add_option("-w,--write", arguments->file, "Output file; default: standard output, as in | tshark -r -")
      .type_name("FILE");
  command.set_body([arguments] { return capture(*arguments); });
}

}  // namespace plugfest::cli
