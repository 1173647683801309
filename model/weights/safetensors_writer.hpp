// SafetensorsWriter: writes a safetensors file that appears under its name only when it is
// complete.
//
// The header comes first in such a file, so all tensors are declared before any byte of them;
// then their bytes are appended in that order, in pieces of any size. Until finish() it is an
// UnfinishedFile, which a writer that goes without finish() removes.
//
// Format: safetensors_file.hpp; the header is filled up with spaces to a multiple of 8 bytes.
//
// One thread. The caller's numbers are in this machine's byte order, which is
// little endian everywhere Paceline runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/safetensors_file.hpp"
#include "model/weights/unfinished_file.hpp"

namespace paceline {

struct SafetensorsEntry {
    std::string name;  // unique in the file
    SafetensorsType type = SafetensorsType::F32;
    std::vector<std::int64_t> shape = {};

    [[nodiscard]] std::uint64_t bytes() const;
};

class SafetensorsWriter {
public:
    /// Begins the file and writes its header. Errors: those of UnfinishedFile::begin(); another
    /// process writes it.
    static Result<SafetensorsWriter> create(const std::string& path,
                                            const std::vector<SafetensorsEntry>& entries,
                                            const std::map<std::string, std::string>& metadata);

    SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
    SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept = delete;
    SafetensorsWriter(const SafetensorsWriter&) = delete;
    SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
    ~SafetensorsWriter() = default;

    /// The next bytes. Errors: System (the disk is full).
    [[nodiscard]] Status append(std::span<const std::byte> bytes);
    template <class T>
    [[nodiscard]] Status append(const std::vector<T>& numbers) {
        static_assert(std::is_arithmetic_v<T>);
        return append(std::as_bytes(std::span{numbers}));
    }

    /// Gives the file its name, replacing one that has it. Precondition: all bytes that were
    /// declared have been appended. Errors: System.
    [[nodiscard]] Status finish();

private:
    SafetensorsWriter(UnfinishedFile file, std::uint64_t bytes)
        : file_{std::move(file)}, bytes_left_{bytes} {}

    UnfinishedFile file_;
    std::uint64_t bytes_left_;  // declared and not yet appended
};

}  // namespace paceline
