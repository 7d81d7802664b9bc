#include "harness/control/properties.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

namespace plugfest::control {

namespace {

const PropertyField* find(const std::vector<PropertyField>& fields, std::string_view name) {
  for (const PropertyField& field : fields)
    if (field.name == name) return &field;
  return nullptr;
}

template <typename T>
T number_at(const std::vector<std::byte>& bytes, std::size_t offset) {
  T number{};
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

}  // namespace

bool PropertiesOutcome::has(std::string_view field) const { return find(fields, field) != nullptr; }

std::int64_t PropertiesOutcome::integer(std::string_view name) const {
  const PropertyField* field = find(fields, name);
  if (field == nullptr) throw std::out_of_range(fmt::format("these properties have no {}", name));
  switch (field->size) {
    case 2:
      return number_at<std::int16_t>(bytes, field->offset);
    case 4:
      return number_at<std::int32_t>(bytes, field->offset);
    default:
      return number_at<std::int64_t>(bytes, field->offset);
  }
}

std::int64_t PropertiesOutcome::integer(std::string_view name, std::size_t index) const {
  return integer(fmt::format("{}[{}]", name, index));
}

float PropertiesOutcome::real(std::string_view name) const {
  const PropertyField* field = find(fields, name);
  if (field == nullptr) throw std::out_of_range(fmt::format("these properties have no {}", name));
  return number_at<float>(bytes, field->offset);
}

}  // namespace plugfest::control
