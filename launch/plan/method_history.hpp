// MethodHistory: what earlier runs of a model on this machine have shown of methods, and what
// `--method auto` makes of it.
//
// A method gains less the more requests share a batch, so runs of several at a time have a record
// of their own; so have drawn texts, which drafts predict less well than greedy ones. The choice
// goes by the record of equal runs, and for methods that it lacks by those of runs that are less
// and less alike:
//
//     as many requests  ->  one request, drawn as here  ->  one request, greedy
//
// A server's requests come as they please, mostly fewer than there may be, some drawn: what it has
// seen tells nothing of full batches, and is a record of its own.
//
// One thread; reads and writes files in the cache folder. Nothing here is needed for an answer:
// without a cache folder the choice is made as if nothing were known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launch/base/model_options.hpp"
#include "launch/plan/auto_choice.hpp"
#include "launch/plan/method_record.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

class MethodHistory {
public:
    enum class Batches : std::uint8_t { Full, AsTheyCome };
    /// What is decoded.
    struct Load {
        int requests = 1;  // at a time, at most
        Batches batches = Batches::Full;
        bool drawn = false;  // at a temperature
    };

    MethodHistory(const ModelFile& file,
                  const ModelOptions& model,
                  const std::string& draft_model,
                  const std::string& cache_folder,
                  const Load& load);

    /// Methods of the record that `lacks` is true of are not chosen. Called at each choice.
    void leave_out_if(std::function<bool(const std::string& method)> lacks) {
        lacks_ = std::move(lacks);
    }
    /// Of all methods. `plain`: how to decode without speculation where that is best.
    [[nodiscard]] AutoChoice choose(const std::string& plain) const;
    /// Of requests that share a batch all the time: plain decoding, which reads the weights once
    /// for all of them, unless runs of as many at a time have shown a gain. Of one: choose().
    [[nodiscard]] AutoChoice choose_for_batches(const std::string& plain) const;
    /// The choice, but of none in `refused`, if `method` gains so much (times plain decoding) from
    /// now on. Of requests that always share a batch by runs of as many alone, as gain_of(); else
    /// as choose().
    [[nodiscard]] AutoChoice choose_given(const std::string& plain,
                                          const std::string& method,
                                          double gain,
                                          const std::set<std::string>& refused = {}) const;
    /// Times plain decoding; 0: nothing is known of it.
    [[nodiscard]] double gain_of(const std::string& method) const;
    /// Of a gain over a pipeline's own turns without speculation: they are slower than plain
    /// decoding without stages by what `paceline plan` has measured, if it has.
    [[nodiscard]] double over_plain(double gain) const;
    /// A run of a pipeline has shown this; its gain is over its own turns without speculation.
    void add(const std::string& method, MethodRate run);
    /// So many runs decoded plainly. Counted where the record says to.
    void add_plain(std::int64_t runs);

private:
    void read();
    [[nodiscard]] AutoChoice choice_from(const MethodRecord& record,
                                         const std::string& plain,
                                         const std::set<std::string>& refused = {}) const;

    /// What choices during a run go by.
    [[nodiscard]] const MethodRecord& compared() const {
        return load_.batches == Batches::Full ? own_ : record_;
    }

    Load load_;
    std::size_t cores_;
    std::vector<std::string> keys_;  // of the records; the last one's runs are like those here
    MethodRecords records_;
    MethodRecord own_;     // of the last key
    MethodRecord record_;  // of all: of each method what the last one that has it says
    std::function<bool(const std::string& method)> lacks_ = {};
};

}  // namespace paceline
