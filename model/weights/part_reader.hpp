// PartReader: reads a trained part (docs/trained-parts.md) out of a safetensors file, checking
// every name, shape, type and number against the target that it was made for.
//
// The first thing that is wrong is kept and reported by status(); what is returned afterwards is
// empty and must not be used. Borrows the file and the configuration. One thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"
#include "model/config.hpp"
#include "model/weights/safetensors_file.hpp"
#include "model/weights/tensor.hpp"

namespace paceline {

enum class PartKind : std::uint8_t { Draft, Heads, Adapter, Lora, Probe, Eagle };

[[nodiscard]] const char* name_of(PartKind kind);  // "draft", as in the file

/// The metadata of a part's file.
struct PartCard {
    PartKind kind = PartKind::Draft;
    std::uint64_t target = 0;  // ModelFile::fingerprint() of the target
    std::string name;          // for people
    std::string licence;       // likewise; may be empty
};

/// Errors: BadFile, Unsupported (another version of the format), naming file, key and value.
[[nodiscard]] Result<PartCard> read_card(const SafetensorsFile& file);

class PartReader {
public:
    PartReader(const SafetensorsFile& file, const ModelConfig& target);

    [[nodiscard]] const Status& status() const { return status_; }
    void fail(const std::string& what);

    /// A whole number of the metadata.
    int number(const std::string& key, int lowest, int highest);
    /// A finite decimal number of the metadata.
    double real(const std::string& key);
    /// Layers of the target, 1 for the first, ascending, with commas between them; empty: no such
    /// key.
    std::vector<int> layers(const std::string& key);
    /// "0" or "1".
    bool flag(const std::string& key);
    /// As above, and it must be `wanted`, the target's.
    void same(const std::string& key, int wanted);

    [[nodiscard]] bool has(const std::string& tensor) const;
    /// A matrix [rows, cols] as stored: plain, or U8 in the blocks that "type.NAME" names.
    TensorView matrix(const std::string& name, std::int64_t rows, std::int64_t cols);
    /// Plain, finite.
    TensorView vector(const std::string& name, std::int64_t count);
    /// The same two as numbers, finite.
    std::vector<float> matrix_values(const std::string& name, std::int64_t rows, std::int64_t cols);
    std::vector<float> vector_values(const std::string& name, std::int64_t count);
    /// The short list "tokens": ascending, of the target's vocabulary, not empty.
    std::vector<TokenId> tokens();

    /// Keys that were not read would change the part if they were ignored.
    void refuse_leftovers();

private:
    const StoredTensor* take(const std::string& name);
    StoredType type_of(const StoredTensor& tensor);
    TensorView view(const std::string& name, std::vector<std::int64_t> shape, bool blocks);
    std::vector<float> values(const TensorView& tensor);

    const SafetensorsFile& file_;
    const ModelConfig& target_;
    std::set<std::string> taken_;
    Status status_;
};

}  // namespace paceline
