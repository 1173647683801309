#include "model/weights/safetensors_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/core.h>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "ipc/base/checked.hpp"
#include "model/weights/message_text.hpp"

// quoted_text() is called with its namespace: std has one that the JSON library brings along.
namespace paceline {
namespace {

using nlohmann::json;

constexpr const char* kMetadata = "__metadata__";
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kHeaderBytesMax = std::uint64_t{16} << 20;
constexpr std::size_t kDimensionsMax = 8;
constexpr int kDepthMax = 3;  // header, tensor, shape

struct TypeEntry {
    SafetensorsType type;
    const char* name;
    std::size_t bytes;
};
constexpr std::array kTypes = {
    TypeEntry{SafetensorsType::Bool, "BOOL", 1}, TypeEntry{SafetensorsType::U8, "U8", 1},
    TypeEntry{SafetensorsType::I8, "I8", 1},     TypeEntry{SafetensorsType::U16, "U16", 2},
    TypeEntry{SafetensorsType::I16, "I16", 2},   TypeEntry{SafetensorsType::F16, "F16", 2},
    TypeEntry{SafetensorsType::BF16, "BF16", 2}, TypeEntry{SafetensorsType::U32, "U32", 4},
    TypeEntry{SafetensorsType::I32, "I32", 4},   TypeEntry{SafetensorsType::F32, "F32", 4},
    TypeEntry{SafetensorsType::U64, "U64", 8},   TypeEntry{SafetensorsType::I64, "I64", 8},
    TypeEntry{SafetensorsType::F64, "F64", 8}};

const TypeEntry& entry_of(SafetensorsType type) {
    return kTypes[static_cast<std::size_t>(type)];
}

/// Reads one header; every function names what it refuses.
class HeaderReader {
public:
    HeaderReader(std::span<const std::byte> bytes, const std::string& file)
        : bytes_{bytes}, file_{file} {}

    Result<SafetensorsContents> read();

private:
    [[nodiscard]] Error bad(const std::string& what) const {
        return Error{Errc::BadFile, file_ + ": " + what};
    }
    [[nodiscard]] Error bad_tensor(const std::string& name, const std::string& what) const {
        return bad("tensor " + paceline::quoted_text(name) + " " + what);
    }
    Result<json> parse_header(std::string_view text) const;
    Status read_metadata(const json& value, SafetensorsContents& out) const;
    Result<StoredTensor> read_tensor(const std::string& name, const json& value) const;
    Result<std::vector<std::int64_t>> read_shape(const std::string& name, const json& value) const;
    Result<std::span<const std::byte>> read_offsets(const std::string& name,
                                                    const json& value) const;
    Status check_filled(const std::vector<StoredTensor>& tensors) const;

    std::span<const std::byte> bytes_;
    std::span<const std::byte> data_;
    const std::string& file_;
};

Result<json> HeaderReader::parse_header(std::string_view text) const {
    // A parser keeps the last of two equal keys: a second meaning, unseen.
    std::array<std::set<std::string>, kDepthMax + 2> seen;
    std::string twice;
    bool deep = false;
    const auto watch = [&](int depth, json::parse_event_t event, json& value) {
        deep = deep || depth > kDepthMax;
        if (deep) return false;
        const auto level = static_cast<std::size_t>(depth);
        if (event == json::parse_event_t::object_start) seen[level + 1].clear();
        if (event == json::parse_event_t::key) {
            const auto& key = value.get_ref<const std::string&>();
            if (!seen[level].insert(key).second && twice.empty()) twice = key;
        }
        return true;
    };
    json header = json::parse(text.begin(), text.end(), watch, false);
    if (deep) return bad("its header is nested deeper than a header is");
    if (header.is_discarded()) return bad("its header is not JSON");
    if (!header.is_object()) return bad("its header is not a JSON object");
    if (!twice.empty())
        return bad("its header has the key " + paceline::quoted_text(twice) + " twice");
    return header;
}

Status HeaderReader::read_metadata(const json& value, SafetensorsContents& out) const {
    if (value.is_null()) return {};  // as if absent, to the library too
    if (!value.is_object()) return bad(std::string{kMetadata} + " is not an object");
    for (const auto& [key, text] : value.items()) {
        if (!text.is_string())
            return bad("metadata " + paceline::quoted_text(key) + " is not a string");
        out.metadata.emplace(key, text.get<std::string>());
    }
    return {};
}

Result<std::vector<std::int64_t>> HeaderReader::read_shape(const std::string& name,
                                                           const json& value) const {
    if (!value.is_array()) return bad_tensor(name, "has a shape that is not a list");
    if (value.size() > kDimensionsMax) {
        return bad_tensor(name, fmt::format("has {} dimensions, at most {} are read", value.size(),
                                            kDimensionsMax));
    }
    std::vector<std::int64_t> shape;
    for (const json& size : value) {
        // What does not fit an int64 cannot be the size of something in a file.
        if (!size.is_number_unsigned() || size.get<std::uint64_t>() >> 62U != 0) {
            return bad_tensor(
                name, "has the size " + paceline::quoted_text(size.dump()) + " in its shape");
        }
        shape.push_back(size.get<std::int64_t>());
    }
    return shape;
}

Result<std::span<const std::byte>> HeaderReader::read_offsets(const std::string& name,
                                                              const json& value) const {
    const bool pair = value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                      value[1].is_number_unsigned();
    if (!pair) return bad_tensor(name, "has data_offsets that are not two numbers");
    const auto begin = value[0].get<std::uint64_t>();
    const auto end = value[1].get<std::uint64_t>();
    if (begin > end || end > data_.size()) {
        return bad_tensor(
            name,
            fmt::format(
                "lies at bytes {} to {} of the data, which have {}; the file may be truncated",
                begin, end, data_.size()));
    }
    return data_.subspan(begin, end - begin);
}

Result<StoredTensor> HeaderReader::read_tensor(const std::string& name, const json& value) const {
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
        !value.contains("shape") || !value.contains("data_offsets")) {
        return bad_tensor(name, "is not described by dtype, shape and data_offsets");
    }
    StoredTensor tensor{.name = name, .shape = {}, .bytes = {}};
    const json& dtype = value["dtype"];
    const auto* const type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeEntry& t) {
        return dtype.is_string() && dtype.get_ref<const std::string&>() == t.name;
    });
    if (type == kTypes.end()) {
        return bad_tensor(
            name,
            "has the unknown dtype " +
                paceline::quoted_text(dtype.is_string() ? dtype.get<std::string>() : dtype.dump()));
    }
    tensor.type = type->type;
    Result<std::vector<std::int64_t>> shape = read_shape(name, value["shape"]);
    if (!shape) return shape.error();
    tensor.shape = std::move(shape).value();
    const Result<std::span<const std::byte>> bytes = read_offsets(name, value["data_offsets"]);
    if (!bytes) return bytes.error();
    tensor.bytes = bytes.value();
    std::optional<std::uint64_t> needed{type->bytes};
    for (const std::int64_t size : tensor.shape) {
        if (needed) needed = checked_mul<std::uint64_t>(*needed, static_cast<std::uint64_t>(size));
    }
    if (!needed || *needed != tensor.bytes.size()) {
        return bad(fmt::format("tensor {} needs {} bytes, its data_offsets span {}",
                               describe(tensor),
                               (needed ? std::to_string(*needed) : std::string{"more than 2^64"}),
                               tensor.bytes.size()));
    }
    return tensor;
}

/// `tensors` are in the order of their bytes.
Status HeaderReader::check_filled(const std::vector<StoredTensor>& tensors) const {
    std::size_t at = 0;
    for (const StoredTensor& tensor : tensors) {
        const auto begin = static_cast<std::size_t>(tensor.bytes.data() - data_.data());
        if (begin != at) {
            return bad_tensor(
                tensor.name,
                fmt::format("begins at byte {} of the data, the one before it ends at {}", begin,
                            at));
        }
        at += tensor.bytes.size();
    }
    if (at == data_.size()) return {};
    return bad(fmt::format("has {} bytes of data, its tensors fill {}", data_.size(), at));
}

Result<SafetensorsContents> HeaderReader::read() {
    if (bytes_.size() < kLengthBytes) {
        return bad(fmt::format("has {} bytes, too few for a safetensors file", bytes_.size()));
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), sizeof length);
    if (length > kHeaderBytesMax || length > bytes_.size() - kLengthBytes) {
        return bad(fmt::format(
            "its header claims {} bytes, {} follow; not a safetensors file, or a truncated one",
            length, bytes_.size() - kLengthBytes));
    }
    SafetensorsContents out;
    out.data_start = kLengthBytes + static_cast<std::size_t>(length);
    data_ = bytes_.subspan(out.data_start);
    const auto* text = reinterpret_cast<const char*>(bytes_.data() + kLengthBytes);
    Result<json> header = parse_header({text, static_cast<std::size_t>(length)});
    if (!header) return header.error();
    for (const auto& [name, value] : header.value().items()) {
        if (name == kMetadata) {
            if (Status s = read_metadata(value, out); !s) return s.error();
            continue;
        }
        Result<StoredTensor> tensor = read_tensor(name, value);
        if (!tensor) return tensor.error();
        out.tensors.push_back(std::move(tensor).value());
    }
    // Of tensors at one place, those without bytes come first: they end where they begin.
    std::sort(out.tensors.begin(), out.tensors.end(),
              [](const StoredTensor& a, const StoredTensor& b) {
                  return std::pair{a.bytes.data(), a.bytes.size()} <
                         std::pair{b.bytes.data(), b.bytes.size()};
              });
    if (Status s = check_filled(out.tensors); !s) return s.error();
    return out;
}

}  // namespace

const char* name_of(SafetensorsType type) {
    return entry_of(type).name;
}

std::size_t bytes_of(SafetensorsType type) {
    return entry_of(type).bytes;
}

std::string describe(const StoredTensor& tensor) {
    std::string text = paceline::quoted_text(tensor.name) + " (" + name_of(tensor.type) + " [";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
    return text + "])";
}

Result<SafetensorsContents> read_safetensors(std::span<const std::byte> bytes,
                                             const std::string& file) {
    return HeaderReader{bytes, file}.read();
}

SafetensorsFile::SafetensorsFile(MappedFile file, SafetensorsContents contents)
    : file_{std::move(file)}, contents_{std::move(contents)} {}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
    Result<MappedFile> file = MappedFile::open(path);
    if (!file) return file.error();
    Result<SafetensorsContents> contents = read_safetensors(file.value().bytes(), path);
    if (!contents) return contents.error();
    return SafetensorsFile{std::move(file).value(), std::move(contents).value()};
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
    const auto found = std::find_if(contents_.tensors.begin(), contents_.tensors.end(),
                                    [&](const StoredTensor& t) { return t.name == name; });
    return found == contents_.tensors.end() ? nullptr : &*found;
}

std::optional<std::string> SafetensorsFile::metadata(const std::string& key) const {
    const auto found = contents_.metadata.find(key);
    if (found == contents_.metadata.end()) return std::nullopt;
    return found->second;
}

}  // namespace paceline
