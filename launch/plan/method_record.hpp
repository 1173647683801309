// MethodRecord: what runs of a model have shown on this machine: how many times plain decoding's
// speed each method reached, and how often its drafts were right.
//
// Tokens per second of different runs are not compared: prompts, and the load of the machine,
// differ more than methods do. A gain is of one run: against plain decoding of the same prompt at
// the same time (docs/choosing-a-method.md).
//
//     CACHE/methods/KEY.json      KEY: a hash of the text of record_key()
//
// The key has all that the speed depends on and that a run is asked for: model, draft and trained
// parts, types in memory, device, cores, and the program. Another one has a record of its own.
//
// A file that is damaged, of another key or of another format counts as absent: a record is advice,
// never needed. It is replaced atomically; of two programs that write at once one wins. At most
// kRecordsMax files are kept, the newest. Without a cache folder nothing is remembered.
// Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "launch/base/model_options.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Of one method; of several runs the newer ones count more.
struct MethodRate {
    double gain = 0.0;               // times plain decoding
    double acceptance = 0.0;         // of its drafts' candidates whose parents were right; 0: none
    double tokens_per_second = 0.0;  // for people
    std::int64_t runs = 0;

    friend bool operator==(const MethodRate&, const MethodRate&) = default;
};

struct MethodRecord {
    static constexpr double kNew = 0.2;             // weight of the newest run
    static constexpr std::int64_t kTokensMin = 48;  // of a run that counts
    static constexpr std::size_t kMethodsMax = 128;

    std::map<std::string, MethodRate, std::less<>> methods = {};
    std::int64_t plain_runs = 0;  // that decoded plainly since a method was run

    /// Runs of this method, `run.runs` of them; ignored if gain or rate is not a positive number.
    void add(std::string_view method, const MethodRate& run);
    void add_plain(std::int64_t runs);
    [[nodiscard]] const MethodRate* find(std::string_view method) const;

    friend bool operator==(const MethodRecord&, const MethodRecord&) = default;
};

/// A text that is equal for runs whose speeds may be compared.
[[nodiscard]] std::string record_key(const ModelFile& file,
                                     const ModelOptions& model,
                                     const std::string& draft_model,
                                     std::size_t cores);

class MethodRecords {
public:
    static constexpr std::size_t kRecordsMax = 64;
    static constexpr std::size_t kBytesMax = 256 * 1024;  // of one file

    /// `folder`: Environment::cache_folder; empty: nothing is remembered.
    explicit MethodRecords(const std::string& folder);

    /// Empty if there is none.
    [[nodiscard]] MethodRecord read(const std::string& key) const;
    /// False if it could not be written, which is not an error.
    bool write(const std::string& key, const MethodRecord& record) const;

private:
    [[nodiscard]] std::string path_of(const std::string& key) const;
    void remove_oldest() const;

    std::string folder_;  // empty: none
};

}  // namespace paceline
