// The properties of a device, as getProperties stores them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/control/call.h"

namespace plugfest::control {

struct PropertyField {
  std::string name;
  std::size_t offset = 0;
  std::size_t size = 0;
};

struct PropertiesOutcome : Outcome {
  /// The structure of the version in use, filled with `fill` before the call.
  std::vector<std::byte> bytes;
  /// The members of the structure, in order. All other bytes are padding.
  std::vector<PropertyField> fields;
  /// The first 4095 characters of the texts at `name` and `pciPath`; nullopt: the pointer is NULL or was not stored.
  std::optional<std::string> name;
  std::optional<std::string> pci_path;

  /// True when this version has such a member.
  bool has(std::string_view field) const;
  /// An integer member, sign-extended. Errors: std::out_of_range without such a member.
  std::int64_t integer(std::string_view field) const;
  /// Element of an int array member: "vProps.devs".
  std::int64_t integer(std::string_view field, std::size_t index) const;
  /// `latency`.
  float real(std::string_view field) const;
};

/// The properties of a device. Members that the version in use lacks have the values that NCCL's compatibility layer
/// sets.
struct Properties {
  std::string name;
  std::optional<std::string> pci_path;
  std::uint64_t guid = 0;
  int ptr_support = 0;
  int reg_is_global = 0;
  int force_flush = 0;
  int speed_mbit_per_second = 0;
  int port = 0;
  float latency_us = 0;
  int max_comms = 0;
  int max_recvs = 0;
  int net_device_type = 0;
  int net_device_version = 0;
  std::vector<int> v_props;
  std::uint64_t max_p2p_bytes = 0;
  std::uint64_t max_coll_bytes = 0;
};

/// `device`: the index of the device in the call. Errors: as require_success().
Properties properties_of(const PropertiesOutcome& outcome, int device);

}  // namespace plugfest::control
