// plugfest fabric show, draw and pcap: prints a topology or the state of a background fabric, captures its packets.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fabric/netns/packet_capture.h"
#include "fabric/reduction/processes.h"
#include "fabric/reduction/trees.h"
#include "fabric/roce/counters/counters.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"
#include "fabric/system/text.h"
#include "fabric/topology/draw.h"
#include "harness/bed/reduction.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/cli/stop.h"
#include "harness/wire/json.h"

namespace plugfest::cli {
namespace {

using nlohmann::ordered_json;

struct Arguments {
  std::string topology;
  std::string name;
  std::vector<std::string> words;
  std::string file;
  bool reduction = false;
};

// IFF_LOWER_UP, which <net/if.h> lacks. IFF_RUNNING changes up to a second later.
constexpr unsigned int kCarrier = 1u << 16;

// The state of an interface in the calling thread's namespace.
struct State {
  const char* state = "gone";
  std::vector<std::string> addresses;
  std::uint64_t sent_packets = 0;
  std::uint64_t received_packets = 0;
};

std::map<std::string, State> states() {
  std::map<std::string, State> found;
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(head, &freeifaddrs);
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    State& state = found[entry->ifa_name];
    if (entry->ifa_addr->sa_family == AF_PACKET) {
      state.state = (entry->ifa_flags & IFF_UP) == 0     ? "down"
                    : (entry->ifa_flags & kCarrier) == 0 ? "no carrier"
                                                         : "up";
      rtnl_link_stats statistics = {};
      if (entry->ifa_data != nullptr) std::memcpy(&statistics, entry->ifa_data, sizeof(statistics));
      state.sent_packets = statistics.tx_packets;
      state.received_packets = statistics.rx_packets;
    } else if (entry->ifa_addr->sa_family == AF_INET && entry->ifa_netmask != nullptr) {
      sockaddr_in address = {}, mask = {};
      std::memcpy(&address, entry->ifa_addr, sizeof(address));
      std::memcpy(&mask, entry->ifa_netmask, sizeof(mask));
      state.addresses.push_back(fmt::format("{}/{}", topology::Ipv4Address{ntohl(address.sin_addr.s_addr)}.text(),
                                            std::popcount(mask.sin_addr.s_addr)));
    }
  }
  return found;
}

std::string reduction_table(const std::vector<reduction::NodeReport>& nodes) {
  constexpr const char* kRow = "  {:<16} {:>6} {:>13} {:>9} {:>9} {:>9} {:>10}\n";
  std::string text =
      fmt::format(kRow, "aggregation node", "groups", "contributions", "repeats", "results", "drops", "memory KiB");
  for (const reduction::NodeReport& node : nodes)
    text += fmt::format(kRow, node.switch_name, node.groups, node.counters.contributions, node.counters.repeats,
                        node.counters.results, node.drops(), node.memory_bytes / 1024);
  return "\n" + text;
}

int show_live(bed::FabricChoice fabric, const std::string& json_file) {
  const auto output = report::open_output(json_file);
  bed::RunBed run(std::move(fabric));
  if (const std::optional<int> exit_code = run.enter()) return *exit_code;
  bed::TestBed& bed = run.build(false);
  const topology::Graph& graph = run.graph();
  ordered_json json = {{"fabric", run.record()->name}, {"topology", graph.name}, {"interfaces", ordered_json::array()}};
  std::string text =
      fmt::format("{}: {}, {}, keeper {}\n", run.record()->name, graph.name, graph.size_text(), run.record()->keeper);
  constexpr const char* kRow = "  {:<13} {:<10} {:<18} {:<13} {:>9} {:>9}\n";
  text += fmt::format(kRow, "interface", "state", "address", "peer", "sent", "received");
  std::vector<roce::DeviceCounters> counters;
  const auto node = [&](const std::string& name, const std::vector<topology::Interface>& interfaces, bool is_host) {
    std::map<std::string, State> now;
    bed.fabric().call(name, [&] {
      now = states();
      if (!is_host) return;
      for (roce::DeviceCounters& device : roce::read_counters()) {
        device.device = fmt::format("{}.{}", name, device.device);
        counters.push_back(std::move(device));
      }
    });
    for (const topology::Interface& interface : interfaces) {
      const State& state = now[interface.name];
      std::string peer;
      for (const topology::LinkEnd& end : graph.links[interface.link].ends)
        if (&graph.interface(end) != &interface) peer = graph.node_name(end) + '.' + graph.interface(end).name;
      const std::string own = fmt::format("{}.{}", name, interface.name);
      text += fmt::format(kRow, own, state.state, fmt::to_string(fmt::join(state.addresses, " ")), peer,
                          state.sent_packets, state.received_packets);
      json["interfaces"].push_back({{"name", own},
                                    {"state", state.state},
                                    {"addresses", state.addresses},
                                    {"peer", peer},
                                    {"sent_packets", state.sent_packets},
                                    {"received_packets", state.received_packets}});
    }
  };
  for (const topology::Host& host : graph.hosts) node(host.name, host.interfaces, true);
  for (const topology::Switch& one : graph.switches) node(one.name, one.interfaces, false);
  if (!counters.empty()) text += fmt::format("\n{}", roce::counter_table(counters));
  json["devices"] = ordered_json::object();
  for (const roce::DeviceCounters& device : counters) {
    ordered_json& one = json["devices"][device.device];
    for (const roce::CounterFile& file : roce::counter_files()) one[file.name] = file.value(device.counters);
  }
  if (run.record()->reduction) {
    const std::vector<reduction::NodeReport> nodes = reduction::read_reports(bed.fabric());
    text += reduction_table(nodes);
    json["aggregation_nodes"] = ordered_json::object();
    for (const reduction::NodeReport& one : nodes) json["aggregation_nodes"][one.switch_name] = reduction::to_json(one);
  }
  if (output) output->write(wire::json_text(json));
  if (!report::is_standard_output(json_file)) fmt::print("{}", text);
  return 0;
}

int show_plan(const topology::Graph& graph, const std::string& json_file) {
  ordered_json json = {{"topology", graph.name}, {"links", ordered_json::array()}};
  std::string text = fmt::format("{}: {}\n", graph.name, graph.size_text());
  const auto row = [&](const auto&... cells) {
    text += fmt::format("  {:<11} {:<18} {:<11} {:<18} {:>5} {:>8}", cells...);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  row("end", "address", "end", "address", "MTU", "rate");
  for (const topology::Link& link : graph.links) {
    const auto end = [&](int i) {
      const topology::LinkEnd& end = link.ends[static_cast<std::size_t>(i)];
      const topology::Interface& interface = graph.interface(end);
      return std::pair(fmt::format("{}.{}", graph.node_name(end), interface.name),
                       interface.address.value == 0 ? "" : interface.address.text());
    };
    const auto with_prefix = [&](const std::string& address) {
      return address.empty() ? address : fmt::format("{}/{}", address, link.subnet.prefix_length);
    };
    const double gigabits_per_second = static_cast<double>(link.rate_bits_per_second) / 1e9;
    row(end(0).first, with_prefix(end(0).second), end(1).first, with_prefix(end(1).second), link.mtu_bytes,
        gigabits_per_second == 0 ? "" : fmt::format("{:g} Gbit", gigabits_per_second));
    json["links"].push_back(
        {{"ends",
          {{{"name", end(0).first}, {"address", end(0).second}}, {{"name", end(1).first}, {"address", end(1).second}}}},
         {"subnet", link.subnet.text()},
         {"mtu_bytes", link.mtu_bytes},
         {"rate_bits_per_second", link.rate_bits_per_second}});
  }
  if (const auto output = report::open_output(json_file)) output->write(wire::json_text(json));
  if (!report::is_standard_output(json_file)) fmt::print("{}", text);
  return 0;
}

int show(const Arguments& arguments) {
  bed::FabricChoice fabric = bed::FabricChoice::of(arguments.name, arguments.topology);
  return fabric.record ? show_live(std::move(fabric), arguments.file) : show_plan(fabric.graph, arguments.file);
}

// Makes a picture with Graphviz. `format`: "svg". Errors: std::runtime_error.
std::string picture(const std::string& drawing, const std::string& file, const std::string& format) {
  const Descriptor source(memfd_create("drawing", MFD_CLOEXEC));
  if (!source || write(source.get(), drawing.data(), drawing.size()) != static_cast<ssize_t>(drawing.size()))
    throw_errno("write the drawing for dot");
  lseek(source.get(), 0, SEEK_SET);
  Finished dot = run_program({"dot", "-T" + format}, {}, [&] { dup2(source.get(), STDIN_FILENO); });
  constexpr int kNoProgram = 127;
  if (dot.exit_code == kNoProgram) {
    throw std::runtime_error(
        fmt::format("{}: the program dot draws this picture, and is not installed: run\n"
                    "    sudo apt-get install graphviz\n"
                    "  or write the input of dot with -o {}.dot",
                    file, file.substr(0, file.rfind('.'))));
  }
  if (dot.exit_code != 0) throw std::runtime_error(fmt::format("{}: dot failed: {}", file, dot.errors));
  return std::move(dot.output);
}

int draw(const Arguments& arguments) {
  const std::string extension = std::filesystem::path(arguments.file).extension().string();
  const bool is_text = extension.empty() || extension == ".dot" || extension == ".gv";
  if (!is_text && extension != ".svg" && extension != ".pdf" && extension != ".png") {
    throw std::runtime_error(fmt::format(
        "{}: expected a name that ends in .svg, .pdf or .png for a picture, or in .dot or .gv for the input of dot",
        arguments.file));
  }
  const topology::Graph graph = bed::FabricChoice::of(arguments.name, arguments.topology).graph;
  topology::Marks marks;
  if (arguments.reduction) {
    bed::require_reduction(graph, "fabric draw --reduction");
    marks = reduction::Trees(graph).marks();
  }
  const std::string drawing = topology::to_dot(graph, marks);
  report::OutputFile output(arguments.file.empty() ? "/dev/stdout" : arguments.file);
  output.write(is_text ? drawing : picture(drawing, arguments.file, extension.substr(1)));
  return 0;
}

Descriptor open_output(const std::string& file) {
  if (file.empty() || file == "-") {
    if (isatty(1) != 0)
      throw std::runtime_error(
          "fabric pcap: standard output is a terminal: write to a file with -w FILE, or to a program with | tshark -r "
          "-");
    return Descriptor(dup(1));
  }
  Descriptor fd(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) throw_file_error(file, "write");
  return fd;
}

int capture(const Arguments& arguments) {
  bed::FabricChoice fabric = bed::FabricChoice::of(arguments.words.size() == 2 ? arguments.words[0] : "", "");
  if (!fabric.record)
    throw std::runtime_error(fmt::format("no fabric is up: run {} fabric up pair", program_as_typed()));
  fabric.require_node(arguments.words.back());
  const Descriptor output = open_output(arguments.file);
  bed::RunBed run(std::move(fabric));
  if (const std::optional<int> exit_code = run.enter()) return *exit_code;
  bed::TestBed& bed = run.build(false);
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

void add_fabric_views(Command fabric) {
  auto arguments = std::make_shared<Arguments>();
  Command command =
      fabric.add_subcommand("show", "Print hosts, links and addresses",
                            "For a background fabric, also prints interface states, NIC counters, and counters of the "
                            "aggregation nodes if its switches reduce.");
  command.add_option("NAME", arguments->name, "Background fabric; default: the only one");
  command.add_option("-t,--topology TOPOLOGY", arguments->topology,
                     "Print this topology, a name or a YAML file, instead of a background fabric");
  command.add_option("--json FILE", arguments->file, "Also write the output to FILE as JSON");
  command.set_body([arguments] { return show(*arguments); });

  Command drawing = fabric.add_subcommand("draw", "Draw hosts, switches and links with Graphviz",
                                          "Example: fabric draw -o fabric.svg");
  add_topology_option(drawing, arguments->topology, "the background fabric, else triangle");
  drawing.add_option("NAME", arguments->name, "Background fabric");
  drawing.add_option(
      "-o,--output FILE", arguments->file,
      "Text for Graphviz (.dot, .gv), or a picture that dot makes (.svg, .pdf, .png); default: text on standard "
      "output");
  drawing.add_flag("--reduction", arguments->reduction,
                   "Mark the aggregation trees: their switches and links; a root has a double border");
  drawing.set_body([arguments] { return draw(*arguments); });

  Command pcap = fabric.add_subcommand(
      "pcap", "Capture the RoCE packets of a host or switch",
      "Arguments: [NAME] HOST. NAME is a background fabric; default: the only one. The capture ends on Ctrl-C.");
  pcap.add_option("HOST", arguments->words, "Host or switch, after the fabric's name if several are up",
                  {.max_values = 2, .required = true});
  pcap.add_option("-w,--write FILE", arguments->file,
                  "Write the packets to FILE; default: standard output, for tshark -r -");
  pcap.set_body([arguments] { return capture(*arguments); });
}

}  // namespace plugfest::cli
