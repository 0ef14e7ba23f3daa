//! The C interface of librdkafka, as far as a consumer needs it, of a library that the process has loaded already.

use std::ffi::{CString, c_char, c_int, c_void};

pub type Pointer = *mut c_void;

#[repr(C)]
pub struct Message {
    pub err: c_int,
    pub topic: Pointer,
    pub partition: i32,
    pub payload: *const u8,
    pub len: usize,
    pub key: *const u8,
    pub key_len: usize,
    pub offset: i64,
    private: Pointer,
}

#[repr(C)]
pub struct TopicPartition {
    topic: *mut c_char,
    partition: i32,
    pub offset: i64,
}

pub type LogCallback = unsafe extern "C" fn(Pointer, c_int, *const c_char, *const c_char);

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Its functions, by their names in C.
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Of the library at this path; none where it is not loaded, or lacks one of them.
            pub fn of(path: &str) -> Option<Functions> {
                let library = loaded(path)?;
                // The types are those of librdkafka's header, which never change: others get other names.
                Some(Functions {
                    // SAFETY: the symbol is this function, with the types of librdkafka's header.
                    $($name: unsafe { std::mem::transmute::<Pointer, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                        symbol(library, concat!(stringify!($name), "\0"))?
                    ) },)*
                })
            }
        }
    };
}

functions! {
    rd_kafka_version: fn() -> c_int;
    rd_kafka_err2str: fn(c_int) -> *const c_char;
    rd_kafka_conf_new: fn() -> Pointer;
    rd_kafka_conf_set: fn(Pointer, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    rd_kafka_conf_set_log_cb: fn(Pointer, LogCallback);
    rd_kafka_conf_destroy: fn(Pointer);
    rd_kafka_new: fn(c_int, Pointer, *mut c_char, usize) -> Pointer;
    rd_kafka_poll_set_consumer: fn(Pointer) -> c_int;
    rd_kafka_queue_get_consumer: fn(Pointer) -> Pointer;
    rd_kafka_queue_destroy: fn(Pointer);
    rd_kafka_consumer_close: fn(Pointer) -> c_int;
    rd_kafka_destroy: fn(Pointer);
    rd_kafka_topic_new: fn(Pointer, *const c_char, Pointer) -> Pointer;
    rd_kafka_topic_destroy: fn(Pointer);
    rd_kafka_topic_name: fn(Pointer) -> *const c_char;
    rd_kafka_metadata: fn(Pointer, c_int, Pointer, *mut Pointer, c_int) -> c_int;
    rd_kafka_metadata_destroy: fn(Pointer);
    rd_kafka_last_error: fn() -> c_int;
    rd_kafka_topic_partition_list_new: fn(c_int) -> Pointer;
    rd_kafka_topic_partition_list_add: fn(Pointer, *const c_char, i32) -> *mut TopicPartition;
    rd_kafka_topic_partition_list_destroy: fn(Pointer);
    rd_kafka_incremental_assign: fn(Pointer, Pointer) -> Pointer;
    rd_kafka_incremental_unassign: fn(Pointer, Pointer) -> Pointer;
    rd_kafka_error_code: fn(Pointer) -> c_int;
    rd_kafka_error_string: fn(Pointer) -> *const c_char;
    rd_kafka_error_destroy: fn(Pointer);
    rd_kafka_consume_batch_queue: fn(Pointer, c_int, *mut *mut Message, usize) -> isize;
    rd_kafka_message_destroy: fn(*mut Message);
    rd_kafka_message_timestamp: fn(*const Message, *mut c_int) -> i64;
    rd_kafka_message_errstr: fn(*const Message) -> *const c_char;
    rd_kafka_message_detach_headers: fn(*mut Message, *mut Pointer) -> c_int;
    rd_kafka_header_get_all: fn(Pointer, usize, *mut *const c_char, *mut *const u8, *mut usize) -> c_int;
    rd_kafka_headers_destroy: fn(Pointer);
}

#[cfg(unix)]
mod system {
    use super::{CString, Pointer, c_char, c_int};

    const NOW: c_int = 2;
    #[cfg(target_os = "linux")]
    const LOADED_ONLY: c_int = 4;
    #[cfg(not(target_os = "linux"))]
    const LOADED_ONLY: c_int = 16;

    // SAFETY: the types are those of POSIX.
    unsafe extern "C" {
        fn dlopen(path: *const c_char, flags: c_int) -> Pointer;
        fn dlsym(library: Pointer, name: *const c_char) -> Pointer;
    }

    pub fn loaded(path: &str) -> Option<Pointer> {
        let path = CString::new(path).ok()?;
        // SAFETY: the path ends with a NUL. A library that is loaded already is only found, so nothing of it runs.
        let library = unsafe { dlopen(path.as_ptr(), NOW | LOADED_ONLY) };
        (!library.is_null()).then_some(library)
    }

    /// `name` ends with a NUL.
    pub fn symbol(library: Pointer, name: &'static str) -> Option<Pointer> {
        // SAFETY: the library stays loaded, because it is never closed, and the name ends with a NUL.
        let found = unsafe { dlsym(library, name.as_ptr().cast()) };
        (!found.is_null()).then_some(found)
    }
}

#[cfg(not(unix))]
mod system {
    use super::Pointer;

    pub fn loaded(_path: &str) -> Option<Pointer> {
        None
    }

    pub fn symbol(_library: Pointer, _name: &'static str) -> Option<Pointer> {
        None
    }
}

use system::{loaded, symbol};
