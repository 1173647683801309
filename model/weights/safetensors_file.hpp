// SafetensorsFile: a safetensors file, opened and checked: named tensors and strings about them.
//
//     u64 header bytes (little-endian) | header, JSON | data
//     header: {"__metadata__": {key: string}, name: {"dtype", "shape", "data_offsets": [begin,
//     end]}}
//
// Owns the mapping that every StoredTensor points into; moving the file leaves the bytes where they
// are. Immutable: may be read from several threads. When a value is returned, every name is there
// once, every dtype is one of SafetensorsType, every tensor's bytes are what dtype and shape
// demand, and the tensors fill the data from its first byte to its last without gap or overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/mapped_file.hpp"

namespace paceline {

enum class SafetensorsType : std::uint8_t {
    Bool,
    U8,
    I8,
    U16,
    I16,
    F16,
    BF16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64
};

[[nodiscard]] const char* name_of(SafetensorsType type);  // "BF16", as in the file
[[nodiscard]] std::size_t bytes_of(SafetensorsType type);

struct StoredTensor {
    std::string name;
    SafetensorsType type = SafetensorsType::F32;
    std::vector<std::int64_t> shape;  // empty: one number
    std::span<const std::byte> bytes;
};

/// Name, type and shape for a message: "\"q\" (F32 [4, 8])".
[[nodiscard]] std::string describe(const StoredTensor& tensor);

struct SafetensorsContents {
    std::map<std::string, std::string> metadata;
    std::vector<StoredTensor> tensors;  // in the order of their bytes
    std::size_t data_start = 0;         // bytes in front of the tensors' data
};

/// Parses and checks `bytes`; `file` is the name used in messages. The tensors point into `bytes`.
/// Errors: BadFile with file, field and value.
[[nodiscard]] Result<SafetensorsContents> read_safetensors(std::span<const std::byte> bytes,
                                                           const std::string& file);

class SafetensorsFile {
public:
    /// Errors: those of MappedFile::open() and read_safetensors().
    static Result<SafetensorsFile> open(const std::string& path);

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] const MappedFile& file() const { return file_; }
    [[nodiscard]] const SafetensorsContents& contents() const { return contents_; }
    /// nullptr: the file has none of that name.
    [[nodiscard]] const StoredTensor* find(std::string_view name) const;
    /// Nothing: the metadata have no such key.
    [[nodiscard]] std::optional<std::string> metadata(const std::string& key) const;

    /// Gives up the mapping, for who keeps views of it.
    [[nodiscard]] MappedFile take_file() && { return std::move(file_); }

private:
    SafetensorsFile(MappedFile file, SafetensorsContents contents);
    MappedFile file_;
    SafetensorsContents contents_;
};

}  // namespace paceline
