#include "fabric/roce/counters/counters.h"

#include <algorithm>
#include <system_error>

#include "fabric/roce/counters/page.h"
#include "fabric/system/file.h"

namespace plugfest::roce {
namespace {

namespace fs = std::filesystem;

using Of = const Counters&;

constexpr CounterFile kFiles[] = {
    // Port counters. The InfiniBand architecture counts data in units of 4 bytes.
    {"counters", "port_xmit_data", [](Of c) { return c.sent_bytes / 4; }},
    {"counters", "port_rcv_data", [](Of c) { return c.received_bytes / 4; }},
    {"counters", "port_xmit_packets", [](Of c) { return c.sent_packets; }},
    {"counters", "port_rcv_packets", [](Of c) { return c.received_packets; }},
    {"counters", "unicast_xmit_packets", [](Of c) { return c.sent_packets; }},
    {"counters", "unicast_rcv_packets", [](Of c) { return c.received_packets; }},
    {"counters", "port_rcv_errors", [](Of c) { return c.icrc_errors + c.malformed_packets; }},
    // mlx5 names.
    {"hw_counters", "duplicate_request", [](Of c) { return c.duplicate_requests; }},
    {"hw_counters", "out_of_sequence", [](Of c) { return c.out_of_sequence; }},
    {"hw_counters", "out_of_buffer", [](Of c) { return c.sent_rnr_naks; }},
    {"hw_counters", "packet_seq_err", [](Of c) { return c.received_sequence_naks; }},
    {"hw_counters", "rnr_nak_retry_err", [](Of c) { return c.received_rnr_naks; }},
    {"hw_counters", "local_ack_timeout_err", [](Of c) { return c.timeouts; }},
    {"hw_counters", "req_remote_access_errors", [](Of c) { return c.received_access_naks; }},
    {"hw_counters", "req_remote_invalid_request", [](Of c) { return c.received_invalid_request_naks; }},
    {"hw_counters", "resp_remote_access_errors", [](Of c) { return c.sent_access_naks; }},
    {"hw_counters", "rx_icrc_encapsulated", [](Of c) { return c.icrc_errors; }},
    {"hw_counters", "np_ecn_marked_roce_packets", [](Of c) { return c.marked_packets; }},
    {"hw_counters", "np_cnp_sent", [](Of c) { return c.sent_notifications; }},
    {"hw_counters", "rp_cnp_handled", [](Of c) { return c.handled_notifications; }},
    // rxe names.
    {"hw_counters", "sent_pkts", [](Of c) { return c.sent_packets; }},
    {"hw_counters", "rcvd_pkts", [](Of c) { return c.received_packets; }},
    {"hw_counters", "out_of_seq_request", [](Of c) { return c.out_of_sequence; }},
    {"hw_counters", "rcvd_rnr_err", [](Of c) { return c.received_rnr_naks; }},
    {"hw_counters", "send_rnr_err", [](Of c) { return c.sent_rnr_naks; }},
    {"hw_counters", "rcvd_seq_err", [](Of c) { return c.received_sequence_naks; }},
    {"hw_counters", "retry_exceeded_err", [](Of c) { return c.retries_exceeded; }},
    {"hw_counters", "retry_rnr_exceeded_err", [](Of c) { return c.rnr_retries_exceeded; }},
    // Names of this project.
    {"hw_counters", "retransmitted_packets", [](Of c) { return c.retransmitted_packets; }},
    {"hw_counters", "sent_sequence_naks", [](Of c) { return c.sent_sequence_naks; }},
    {"hw_counters", "sent_invalid_request_naks", [](Of c) { return c.sent_invalid_request_naks; }},
    {"hw_counters", "sent_operation_naks", [](Of c) { return c.sent_operation_naks; }},
    {"hw_counters", "received_operation_naks", [](Of c) { return c.received_operation_naks; }},
    {"hw_counters", "malformed_packets", [](Of c) { return c.malformed_packets; }},
    {"hw_counters", "unknown_queue_pairs", [](Of c) { return c.unknown_queue_pairs; }},
    {"hw_counters", "unexpected_packets", [](Of c) { return c.unexpected_packets; }},
    {"hw_counters", "dropped_messages", [](Of c) { return c.dropped_messages; }},
    {"hw_counters", "q_key_violations", [](Of c) { return c.q_key_violations; }},
    {"hw_counters", "forwarded_packets", [](Of c) { return c.forwarded_packets; }},
    {"hw_counters", "forward_drops", [](Of c) { return c.forward_drops; }},
    {"hw_counters", "buffer_drops", [](Of c) { return c.buffer_drops; }},
    {"hw_counters", "fault_drops", [](Of c) { return c.fault_drops; }},
    {"hw_counters", "fault_duplicates", [](Of c) { return c.fault_duplicates; }},
    {"hw_counters", "fault_reorders", [](Of c) { return c.fault_reorders; }},
    {"hw_counters", "fault_corruptions", [](Of c) { return c.fault_corruptions; }},
    {"hw_counters", "delayed_packets", [](Of c) { return c.delayed_packets; }},
};

bool write_number(const fs::path& file, std::uint64_t number) {
  return replace_file(file, std::to_string(number) + '\n');
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_file_error(folder, "create", error.value());
}

fs::path path_of(const fs::path& device_folder, const CounterFile& file) {
  return device_folder / "ports" / "1" / file.folder / file.name;
}

struct Column {
  const char* heading;
  std::uint64_t (*value)(const Counters&);
};

constexpr Column kColumns[] = {
    {"packets out", [](Of c) { return c.sent_packets; }},
    {"MB out", [](Of c) { return c.sent_bytes / 1'000'000; }},
    {"packets in", [](Of c) { return c.received_packets; }},
    {"MB in", [](Of c) { return c.received_bytes / 1'000'000; }},
    {"repeated", [](Of c) { return c.retransmitted_packets; }},
    {"timeouts", [](Of c) { return c.timeouts; }},
    {"NAKs out",
     [](Of c) {
       return c.sent_sequence_naks + c.sent_invalid_request_naks + c.sent_access_naks + c.sent_operation_naks;
     }},
    {"NAKs in",
     [](Of c) {
       return c.received_sequence_naks + c.received_invalid_request_naks + c.received_access_naks +
              c.received_operation_naks;
     }},
    {"RNR out", [](Of c) { return c.sent_rnr_naks; }},
    {"RNR in", [](Of c) { return c.received_rnr_naks; }},
    {"duplicate", [](Of c) { return c.duplicate_requests; }},
    {"out of order", [](Of c) { return c.out_of_sequence; }},
    {"ICRC errors", [](Of c) { return c.icrc_errors; }},
    {"dropped", [](Of c) { return c.buffer_drops + c.forward_drops; }},
    {"faults", [](Of c) { return c.fault_drops + c.fault_duplicates + c.fault_reorders + c.fault_corruptions; }},
};

}  // namespace

std::span<const CounterFile> counter_files() { return kFiles; }

bool write_counter_files(const fs::path& device_folder, const Counters& now, const Counters& before) {
  for (const CounterFile& file : kFiles) {
    const std::uint64_t value = file.value(now);
    if (value != file.value(before) && !write_number(path_of(device_folder, file), value)) return false;
  }
  return true;
}

void make_counter_files(const fs::path& device_folder) {
  make_folder(device_folder);
  make_counter_page(device_folder);
  const Counters now = read_counter_page(device_folder).value_or(Counters{});
  for (const CounterFile& file : kFiles) {
    const fs::path path = path_of(device_folder, file);
    make_folder(path.parent_path());
    if (!write_number(path, file.value(now))) throw_file_error(path, "write");
  }
}

std::vector<DeviceCounters> read_counters(const fs::path& class_infiniband) {
  std::vector<DeviceCounters> devices;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(class_infiniband, error)) {
    const std::optional<Counters> counters = read_counter_page(entry.path());
    if (counters) devices.push_back({entry.path().filename(), *counters});
  }
  std::sort(devices.begin(), devices.end(), [](const auto& a, const auto& b) { return a.device < b.device; });
  return devices;
}

std::string counter_table(std::span<const DeviceCounters> devices) {
  constexpr std::size_t kAlways = 4;
  constexpr std::size_t kTableWidth = 80;
  std::vector<std::vector<std::string>> columns(1, {"device"});
  for (const DeviceCounters& device : devices) columns[0].push_back(device.device);
  for (const Column& column : kColumns) {
    std::vector<std::string> cells = {column.heading};
    bool shown = columns.size() <= kAlways;
    for (const DeviceCounters& device : devices) {
      cells.push_back(std::to_string(column.value(device.counters)));
      shown = shown || column.value(device.counters) != 0;
    }
    if (shown) columns.push_back(std::move(cells));
  }
  const auto width_of = [](const std::vector<std::string>& cells) {
    return std::max_element(cells.begin(), cells.end(), [](auto& a, auto& b) { return a.size() < b.size(); })->size();
  };
  std::string table;
  for (std::size_t first = 1, end = 1; first < columns.size(); first = end) {
    for (std::size_t width = width_of(columns[0]); end < columns.size(); ++end) {
      width += 2 + width_of(columns[end]);
      if (width > kTableWidth && end > first) break;
    }
    if (!table.empty()) table += '\n';
    for (std::size_t row = 0; row < columns[0].size(); ++row) {
      table += columns[0][row] + std::string(width_of(columns[0]) - columns[0][row].size(), ' ');
      for (std::size_t i = first; i < end; ++i)
        table += std::string(2 + width_of(columns[i]) - columns[i][row].size(), ' ') + columns[i][row];
      table += '\n';
    }
  }
  return table;
}

}  // namespace plugfest::roce
