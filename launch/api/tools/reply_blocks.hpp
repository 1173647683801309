// ReplyBlocks: an answer as a row of blocks, one after the other: thought, text, call.
//
//     for (const BlockStep& step : blocks.add(events)) ...     Open, Delta..., Close of one block
//     blocks.finish(complete)                                  closes the last one
//
// The APIs whose answers are lists of items have this form (responses/, messages/).
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/tool_calls/reply_event.hpp"

namespace paceline::serve {

enum class BlockKind : std::uint8_t { Thought, Text, Call };

struct ReplyBlock {
    BlockKind kind = BlockKind::Text;
    std::string text = {};  // of a call: its arguments
    std::string name = {};  // of a call
    std::size_t call = 0;   // of a call: how many were before it
    bool complete = true;   // false: the answer was cut within it
};

struct BlockStep {
    enum class Kind : std::uint8_t { Open, Delta, Close };
    Kind kind = Kind::Open;
    std::size_t block = 0;
    std::string text = {};  // of Delta
};

class ReplyBlocks {
public:
    [[nodiscard]] std::vector<BlockStep> add(const ReplyEvents& events);
    /// `complete`: the answer ended by itself. Once, after the last event.
    [[nodiscard]] std::vector<BlockStep> finish(bool complete);
    [[nodiscard]] const std::vector<ReplyBlock>& all() const { return blocks_; }
    [[nodiscard]] std::size_t calls() const { return calls_; }

private:
    void open(BlockKind kind, std::vector<BlockStep>& steps);
    void close(std::vector<BlockStep>& steps);

    std::vector<ReplyBlock> blocks_;
    std::size_t calls_ = 0;
    bool open_ = false;
};

}  // namespace paceline::serve
