#pragma once
// A library that is loaded at run time. Internal.

#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>
#include <string>

#include "distributed/distributed_error.hpp"

namespace polyphase::distributed {

/// Stays loaded until the program ends.
class SharedLibrary {
 public:
  /// Loads the file that the environment variable `variable` names, else the first of `names` that exists. `what` is its name
  /// in errors.
  SharedLibrary(const char* variable, std::initializer_list<const char*> names, const char* what) : what_(what) {
    const char* given = std::getenv(variable);
    std::string tried;
    const auto load = [&](const char* name) {
      handle_ = ::dlopen(name, RTLD_NOW | RTLD_GLOBAL);  // MPI's plug-ins look for its symbols there
      if (handle_ == nullptr) tried = ::dlerror();
      return handle_ != nullptr;
    };
    if (given != nullptr) {
      (void)load(given);
    } else {
      for (const char* name : names)
        if (load(name)) break;
    }
    require<DistributedError>(handle_ != nullptr, "distributed::init: ", what, " is needed and was not found (", tried, "); ",
                              variable, " may name its library");
  }

  /// Null if the library has no such symbol.
  [[nodiscard]] void* find(const char* name) const { return ::dlsym(handle_, name); }
  [[nodiscard]] void* symbol(const char* name) const {
    void* found = find(name);
    require<DistributedError>(found != nullptr, "distributed::init: the library of ", what_, " has no ", name);
    return found;
  }
  template <class Signature>
  [[nodiscard]] Signature* function(const char* name) const {
    return reinterpret_cast<Signature*>(symbol(name));
  }

 private:
  const char* what_;
  void* handle_ = nullptr;
};

}  // namespace polyphase::distributed
