#include "actors/draft/request/lent_source.hpp"

namespace paceline {

LentSource::LentSource(std::unique_ptr<DraftSource> source, std::span<const TokenId> text)
    : source_{std::move(source)} {
    commit(text);
}

void LentSource::commit(std::span<const TokenId> tokens) {
    if (source_ == nullptr) return;
    if (lent_) {
        uncommitted_.insert(uncommitted_.end(), tokens.begin(), tokens.end());
    } else {
        source_->commit(tokens);
    }
    due_ = true;
}

void LentSource::observe(std::span<const msg::OwnToken> own) {
    if (source_ != nullptr && !lent_) source_->observe(own);
}

void LentSource::lend(DraftNodeId behind) {
    behind_ = behind;
    lent_ = true;
    cancel_.reset();
}

void LentSource::give_back() {
    lent_ = false;
    if (!uncommitted_.empty()) source_->commit(std::exchange(uncommitted_, {}));
}

void LentSource::followed(const DraftTree& tree) {
    if (lent_ && tree.find(behind_) == nullptr) cancel_.cancel();
}

}  // namespace paceline
