#include "training/run_files.hpp"

#include <filesystem>
#include <utility>

#include "training/shared.hpp"

namespace training {

namespace fs = std::filesystem;

bool make_folder(const std::string& path) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  pp::require<pp::Error>(!error, path, ": the folder cannot be made: ", error.message());
  return made;
}

RunFiles::RunFiles(const RunFolder& run, bool resumes, Warn warn) : run_(run), resumes_(resumes), warn_(std::move(warn)) {
  std::error_code ignored;
  if (fs::is_directory(run.path, ignored)) lock_.emplace(run, warn_);
  if (resumes)
    pp::require<pp::Error>(fs::exists(run.last()), "train --resume: there is no run to continue: ", run.last(),
                           " does not exist");
  else
    require_new();
}

void RunFiles::require_new() const {
  pp::require<pp::Error>(!fs::exists(run_.last()), run_.path,
                         " already holds a run: continue it (--resume) or choose another --out");
}

void RunFiles::open_logs(const std::string& header, const std::string& heldout_header, std::int64_t keep_until) {
  if (!lock_) {
    make_folder(run_.path);
    lock_.emplace(run_, warn_);
    if (!resumes_) require_new();  // another training may have come and gone meanwhile
  }
  log_.emplace(run_.log(), header, keep_until);
  heldout_log_.emplace(run_.heldout_log(), heldout_header, keep_until);
}

void RunFiles::restore() {
  if (make_folder(run_.path)) warn_(run_.path + " was missing and is created again");
  if (!lock_->holds()) {
    lock_.reset();
    lock_.emplace(run_, warn_);
  }
  log_->restore();
  heldout_log_->restore();
}

}  // namespace training
