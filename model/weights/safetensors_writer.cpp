#include "model/weights/safetensors_writer.hpp"

#include <bit>
#include <fmt/core.h>
#include <set>
#include <string_view>

#include "ipc/base/check.hpp"

namespace paceline {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

std::string json_string(std::string_view text) {
    constexpr const char* kHex = "0123456789abcdef";
    std::string out = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20) {
            out += "\\u00";
            out += kHex[byte >> 4U];
            out += kHex[byte & 15U];
            continue;
        }
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out + '"';
}

std::string header_of(const std::vector<SafetensorsEntry>& entries,
                      const std::map<std::string, std::string>& metadata) {
    std::string text = "{\"__metadata__\":{";
    const char* comma = "";
    for (const auto& [key, value] : metadata) {
        text += comma + json_string(key) + ":" + json_string(value);
        comma = ",";
    }
    text += "}";
    std::uint64_t begin = 0;
    for (const SafetensorsEntry& entry : entries) {
        text += "," + json_string(entry.name) + ":{\"dtype\":\"" + name_of(entry.type) +
                "\",\"shape\":[";
        comma = "";
        for (const std::int64_t extent : entry.shape) {
            text += comma + std::to_string(extent);
            comma = ",";
        }
        const std::uint64_t end = begin + entry.bytes();
        text += fmt::format("],\"data_offsets\":[{},{}]}}", begin, end);
        begin = end;
    }
    text += "}";
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
}

}  // namespace

std::uint64_t SafetensorsEntry::bytes() const {
    std::uint64_t count = 1;
    for (const std::int64_t extent : shape) {
        PACE_CHECK(extent >= 0, "a tensor has no negative extent");
        count *= static_cast<std::uint64_t>(extent);
    }
    return count * bytes_of(type);
}

Result<SafetensorsWriter> SafetensorsWriter::create(
    const std::string& path,
    const std::vector<SafetensorsEntry>& entries,
    const std::map<std::string, std::string>& metadata) {
    std::set<std::string_view> names;
    std::uint64_t bytes = 0;
    for (const SafetensorsEntry& entry : entries) {
        PACE_CHECK(names.insert(entry.name).second, "two tensors of one name");
        bytes += entry.bytes();
    }
    Result<UnfinishedFile> file = UnfinishedFile::begin(path, UnfinishedFile::Beside::Refuse);
    if (!file) return file.error();
    const std::string header = header_of(entries, metadata);
    const std::uint64_t length = header.size();
    SafetensorsWriter writer{std::move(file).value(), bytes + sizeof length + header.size()};
    if (Status s = writer.append(std::as_bytes(std::span{&length, 1})); !s) return s.error();
    if (Status s = writer.append(std::as_bytes(std::span{header})); !s) return s.error();
    return writer;
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
    PACE_CHECK(bytes.size() <= bytes_left_, "more bytes than the tensors have");
    bytes_left_ -= bytes.size();
    return file_.append(bytes);
}

Status SafetensorsWriter::finish() {
    PACE_CHECK(bytes_left_ == 0, "fewer bytes than the tensors have");
    return file_.keep();
}

}  // namespace paceline
