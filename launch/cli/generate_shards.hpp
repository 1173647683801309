// AnswerShards: writes answers to files of a fixed number of answers.
//
// Answer i (prompt * samples + sample) belongs to shard i / size, whenever it is made and whatever
// became of the others. A shard is written when its last answer is there, under another name until
// it is whole; so a run that was interrupted goes on with the shards that are missing. What is in a
// file says docs/generate.md.
//
// Owns the answers of shards that are not complete yet. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "actors/decoding/answer_batches.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

struct ShardLayout {
    std::string folder;
    std::int64_t size = 500;       // answers of a shard
    int dim = 0;                   // of a residual
    int top = 0;                   // as BatchParams
    std::vector<int> hidden = {};  // as BatchParams
    // What the answers depend on; equal in all shards of a folder.
    std::map<std::string, std::string> metadata = {};
};

class AnswerShards {
public:
    /// Of all answers that a run has to make, in the order of their indices.
    AnswerShards(ShardLayout layout, std::span<const AnswerTask> tasks);

    /// The tasks of shards that are not in the folder yet.
    /// Errors: BadArgument if one that is there was made with other prompts or options, naming
    /// file, key and both values; BadFile if it is no such file.
    [[nodiscard]] Result<std::vector<AnswerTask>> missing() const;

    /// Takes an answer; writes its shard if that is complete. Errors: System.
    [[nodiscard]] Status add(TrainingSample answer);

    [[nodiscard]] std::string path(std::int64_t shard) const;

private:
    [[nodiscard]] std::map<std::string, std::string> metadata_of(std::int64_t shard) const;
    [[nodiscard]] Status write(std::int64_t shard,
                               const std::vector<TrainingSample>& answers) const;

    ShardLayout layout_;
    std::map<std::int64_t, std::vector<AnswerTask>> plan_;      // by shard
    std::map<std::int64_t, std::vector<TrainingSample>> open_;  // of shards that are not complete
};

}  // namespace paceline
