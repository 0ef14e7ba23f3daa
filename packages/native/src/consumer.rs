//! A consumer of librdkafka that gives records as columns: no object for a single record.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

use crate::librdkafka::{Functions, Message, Pointer};

const CONSUMER: c_int = 1;
const CONFIGURED: c_int = 0;
const NO_TIMESTAMP: c_int = 0;
/// What a producer writes instead of a time that it does not know.
const NO_TIME: i64 = -1;
/// Bytes that 32-bit offsets can tell apart, less what one record may have.
const MOST_BYTES: usize = 1 << 30;
/// Messages that are taken from librdkafka's queue together: so few that they stay in the cache until they are copied.
const AT_ONCE: usize = 2_000;
/// Once so many bytes of values and keys have come, no more are asked for. What was asked for may exceed this a little, and
/// has to stay below the size to which a buffer of 32,000 records of `USUAL_BYTES` grows when it doubles.
const ENOUGH_BYTES: usize = 24 << 20;
/// Memory is set aside for records of at most this size; larger ones take it as they come.
const USUAL_BYTES: usize = 512;
const LINES_KEPT: usize = 1_000;

/// Lines that librdkafka has logged, each with its level in syslog.
static LOG: Mutex<VecDeque<(i32, String)>> = Mutex::new(VecDeque::new());

/// What librdkafka says is wrong: its code, and its text.
pub type Fault = (i32, String);
pub type Header = (Vec<u8>, Option<Vec<u8>>);

/// What came of one partition.
pub struct Arrived {
    pub topic: Option<String>,
    pub partition: i32,
    /// Of the last record; of a fault, what it is about.
    pub offset: i64,
    pub what: Result<Records, Fault>,
}

/// Consecutive records of one partition.
pub struct Records {
    pub values: ArrayData,
    pub keys: ArrayData,
    pub offsets: ArrayData,
    pub timestamps: ArrayData,
    /// None if they were not asked for.
    headers: Option<Vec<(usize, Headers)>>,
    count: usize,
}

/// Of one record, as librdkafka has them: read when they are asked for.
struct Headers {
    pointer: Pointer,
    api: Arc<Functions>,
}

// SAFETY: the pointer belongs to this object alone, since it was detached from its message. librdkafka keeps nothing about
// a thread in it.
unsafe impl Send for Headers {}
// SAFETY: a shared reference only reads, and reading changes nothing in librdkafka's list.
unsafe impl Sync for Headers {}

impl Drop for Headers {
    fn drop(&mut self) {
        // SAFETY: the headers belong to this object, which is dropped once.
        unsafe { (self.api.rd_kafka_headers_destroy)(self.pointer) }
    }
}

impl Headers {
    fn read(&self) -> Vec<Header> {
        let mut found = Vec::new();
        let (mut name, mut value, mut size) = (null::<c_char>(), null::<u8>(), 0usize);
        // SAFETY: the headers live as long as this object, and with them the names, which end with a NUL, and the values, which
        // have `size` bytes. They are copied before the next call.
        unsafe {
            while (self.api.rd_kafka_header_get_all)(self.pointer, found.len(), &mut name, &mut value, &mut size) == 0 {
                found.push((CStr::from_ptr(name).to_bytes().to_vec(), bytes(value, size).map(<[u8]>::to_vec)));
            }
        }
        found
    }
}

impl Records {
    /// Of each record; None if they were not asked for.
    pub fn headers(&self) -> Option<Vec<Vec<Header>>> {
        let mut found = vec![Vec::new(); self.count];
        for (row, headers) in self.headers.as_ref()? {
            found[*row] = headers.read();
        }
        Some(found)
    }
}

pub struct Consumer {
    client: Pointer,
    queue: Pointer,
    api: Arc<Functions>,
}

// SAFETY: librdkafka's clients and queues may be used by any thread, and are locked inside.
unsafe impl Send for Consumer {}
// SAFETY: as above; all methods take a shared reference, and change nothing of Rust's.
unsafe impl Sync for Consumer {}

impl Drop for Consumer {
    fn drop(&mut self) {
        // SAFETY: client and queue are live until here, this object is dropped once, and nobody else has the pointers: what a
        // call has brought borrows this object.
        unsafe {
            (self.api.rd_kafka_consumer_close)(self.client);
            (self.api.rd_kafka_queue_destroy)(self.queue);
            (self.api.rd_kafka_destroy)(self.client);
        }
    }
}

impl Consumer {
    pub fn new(api: Functions, properties: &[(String, String)]) -> Result<Consumer, String> {
        let mut said = [0 as c_char; 512];
        // SAFETY: all texts end with a NUL and outlive the calls, which copy them; `said` has the size that is given. The
        // configuration is destroyed here, or belongs to the client, if there is one.
        unsafe {
            let conf = (api.rd_kafka_conf_new)();
            (api.rd_kafka_conf_set_log_cb)(conf, keep);
            for (name, value) in properties {
                let (Ok(name), Ok(value)) = (CString::new(name.as_str()), CString::new(value.as_str())) else {
                    (api.rd_kafka_conf_destroy)(conf);
                    return Err(format!("a NUL in property {name:?}"));
                };
                let set = (api.rd_kafka_conf_set)(conf, name.as_ptr(), value.as_ptr(), said.as_mut_ptr(), said.len());
                if set != CONFIGURED {
                    (api.rd_kafka_conf_destroy)(conf);
                    return Err(text(said.as_ptr()));
                }
            }
            let client = (api.rd_kafka_new)(CONSUMER, conf, said.as_mut_ptr(), said.len());
            if client.is_null() {
                (api.rd_kafka_conf_destroy)(conf);
                return Err(text(said.as_ptr()));
            }
            (api.rd_kafka_poll_set_consumer)(client);
            let queue = (api.rd_kafka_queue_get_consumer)(client);
            Ok(Consumer { client, queue, api: Arc::new(api) })
        }
    }

    /// Ask the cluster for a topic, whose partitions' leaders the client knows then.
    pub fn learn(&self, topic: &str, timeout_ms: i32) -> Result<(), Fault> {
        let name = CString::new(topic).unwrap_or_default();
        // SAFETY: the client is live, the name ends with a NUL and is copied, and handle and metadata are given back once.
        unsafe {
            let handle = (self.api.rd_kafka_topic_new)(self.client, name.as_ptr(), null_mut());
            if handle.is_null() {
                return Err(self.fault((self.api.rd_kafka_last_error)()));
            }
            let mut found = null_mut();
            let code = (self.api.rd_kafka_metadata)(self.client, 0, handle, &mut found, timeout_ms);
            if !found.is_null() {
                (self.api.rd_kafka_metadata_destroy)(found);
            }
            (self.api.rd_kafka_topic_destroy)(handle);
            if code == 0 { Ok(()) } else { Err(self.fault(code)) }
        }
    }

    /// Read these partitions, too, from an offset each.
    pub fn assign(&self, partitions: &[(String, i32, i64)]) -> Result<(), Fault> {
        self.change(partitions, self.api.rd_kafka_incremental_assign)
    }

    /// Read these partitions no more.
    pub fn unassign(&self, partitions: &[(String, i32, i64)]) -> Result<(), Fault> {
        self.change(partitions, self.api.rd_kafka_incremental_unassign)
    }

    fn change(
        &self,
        partitions: &[(String, i32, i64)],
        change: unsafe extern "C" fn(Pointer, Pointer) -> Pointer,
    ) -> Result<(), Fault> {
        // SAFETY: the client is live, the list is made and destroyed here, and an element that is added stays where it is until
        // the next one is. `change` is a function of librdkafka that takes a client and a list, and returns an error or null.
        unsafe {
            let list = (self.api.rd_kafka_topic_partition_list_new)(c_int::try_from(partitions.len()).unwrap_or(0));
            for (topic, partition, offset) in partitions {
                let name = CString::new(topic.as_str()).unwrap_or_default();
                (*(self.api.rd_kafka_topic_partition_list_add)(list, name.as_ptr(), *partition)).offset = *offset;
            }
            let error = change(self.client, list);
            (self.api.rd_kafka_topic_partition_list_destroy)(list);
            if error.is_null() {
                return Ok(());
            }
            let fault = ((self.api.rd_kafka_error_code)(error), text((self.api.rd_kafka_error_string)(error)));
            (self.api.rd_kafka_error_destroy)(error);
            Err(fault)
        }
    }

    /// At most so many records of all partitions, which come before the timeout, and what else there is to say of them.
    /// `headers`: take the records' headers as well. Looking for them costs librdkafka more than anything else here, even
    /// if there are none.
    pub fn take(&self, most: usize, timeout_ms: i32, headers: bool) -> Result<Vec<Arrived>, ArrowError> {
        let end = Instant::now() + Duration::from_millis(timeout_ms.max(0).unsigned_abs().into());
        let mut found = Found::new(most);
        let mut left = most;
        while left > 0 && found.bytes < ENOUGH_BYTES {
            let wanted = left.min(AT_ONCE);
            let messages = self.consume(wanted, end.saturating_duration_since(Instant::now()))?;
            let count = messages.found.len();
            for &pointer in &messages.found {
                self.sort_in(pointer, &mut found, headers)?;
            }
            left -= count;
            if count < wanted {
                break; // it is late
            }
        }
        found.finish()
    }

    fn consume(&self, most: usize, timeout: Duration) -> Result<Messages<'_>, ArrowError> {
        let mut messages: Vec<*mut Message> = vec![null_mut(); most];
        let timeout_ms = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the queue is live, and `messages` has room for as many pointers as is said.
        let count = unsafe {
            (self.api.rd_kafka_consume_batch_queue)(self.queue, timeout_ms, messages.as_mut_ptr(), messages.len())
        };
        let count =
            usize::try_from(count).map_err(|_| ArrowError::ExternalError(self.fault(self.last_error()).1.into()))?;
        messages.truncate(count);
        Ok(Messages { found: messages, api: &self.api })
    }

    /// Of the last call in this thread.
    fn last_error(&self) -> c_int {
        // SAFETY: it takes nothing, and reads a value of the thread.
        unsafe { (self.api.rd_kafka_last_error)() }
    }

    fn sort_in(&self, pointer: *mut Message, found: &mut Found, with_headers: bool) -> Result<(), ArrowError> {
        // SAFETY: librdkafka gave the pointer, and the message is destroyed only when `Messages` is dropped.
        let message = unsafe { &*pointer };
        if message.err != 0 {
            found.arrived.push(self.failed(message));
            return Ok(());
        }
        found.bytes += message.len + message.key_len;
        let columns = found.columns(message, || self.topic(message))?;
        // SAFETY: the message is live; key and payload have the sizes that it says, or are null. Detached headers belong to
        // whoever detached them.
        unsafe {
            let mut kind = NO_TIMESTAMP;
            let timestamp = (self.api.rd_kafka_message_timestamp)(message, &mut kind);
            columns.values.push(bytes(message.payload, message.len));
            columns.keys.push(bytes(message.key, message.key_len));
            columns.offsets.push(message.offset);
            columns.timestamps.push(timestamp);
            columns.stamped.push(kind != NO_TIMESTAMP && timestamp != NO_TIME);
            if with_headers {
                let known = columns.headers.get_or_insert_default();
                let mut headers = null_mut();
                if (self.api.rd_kafka_message_detach_headers)(pointer, &mut headers) == 0 {
                    let headers = Headers { pointer: headers, api: Arc::clone(&self.api) };
                    known.push((columns.offsets.len() - 1, headers));
                }
            }
        }
        Ok(())
    }

    fn failed(&self, message: &Message) -> Arrived {
        // SAFETY: the message is live; the text is its own or a constant, and is copied at once.
        let said = unsafe { text((self.api.rd_kafka_message_errstr)(message)) };
        Arrived {
            topic: self.topic(message),
            partition: message.partition,
            offset: message.offset,
            what: Err((message.err, said)),
        }
    }

    fn topic(&self, message: &Message) -> Option<String> {
        // SAFETY: the message keeps its topic alive, whose name ends with a NUL and is copied at once.
        (!message.topic.is_null()).then(|| unsafe { text((self.api.rd_kafka_topic_name)(message.topic)) })
    }

    fn fault(&self, code: c_int) -> Fault {
        // SAFETY: it takes any code, and the text is a constant.
        (code, unsafe { text((self.api.rd_kafka_err2str)(code)) })
    }
}

/// What one call has brought; given back to librdkafka whatever happens.
struct Messages<'a> {
    found: Vec<*mut Message>,
    api: &'a Functions,
}

impl Drop for Messages<'_> {
    fn drop(&mut self) {
        for &message in &self.found {
            // SAFETY: each pointer is of one message, which nobody else destroys.
            unsafe { (self.api.rd_kafka_message_destroy)(message) }
        }
    }
}

/// Faults where they came, and the records of each partition in their order.
struct Found {
    most: usize,
    /// Of the values and keys so far.
    bytes: usize,
    arrived: Vec<Arrived>,
    open: Vec<Open>,
    places: HashMap<(Pointer, i32), usize>,
    /// The partition of the last record, among the open ones: most records follow one of their own.
    last: usize,
}

/// A partition that has records.
struct Open {
    key: (Pointer, i32),
    topic: Option<String>,
    columns: Columns,
}

impl Found {
    fn new(most: usize) -> Found {
        Found { most, bytes: 0, arrived: Vec::new(), open: Vec::new(), places: HashMap::new(), last: 0 }
    }

    /// Where the record belongs.
    #[inline]
    fn columns(
        &mut self,
        message: &Message,
        topic: impl FnOnce() -> Option<String>,
    ) -> Result<&mut Columns, ArrowError> {
        // A topic has one address as long as one of its partitions is read.
        let key = (message.topic, message.partition);
        if self.open.get(self.last).is_none_or(|open| open.key != key) {
            self.last = *self.places.entry(key).or_insert(self.open.len());
        }
        // The more partitions there are, the fewer of the records each has.
        let empty = |others: usize| Columns::with_capacity(self.most / (others + 1), message);
        if self.last == self.open.len() {
            self.open.push(Open { key, topic: topic(), columns: empty(self.open.len()) });
        } else if self.open[self.last].columns.size() > MOST_BYTES {
            let others = self.open.len();
            let open = &mut self.open[self.last];
            let columns = std::mem::replace(&mut open.columns, empty(others));
            self.arrived.push(Open { key, topic: open.topic.clone(), columns }.arrived()?);
        }
        Ok(&mut self.open[self.last].columns)
    }

    fn finish(mut self) -> Result<Vec<Arrived>, ArrowError> {
        for open in self.open {
            self.arrived.push(open.arrived()?);
        }
        Ok(self.arrived)
    }
}

impl Open {
    fn arrived(self) -> Result<Arrived, ArrowError> {
        let offset = self.columns.offsets.last().copied().unwrap_or(-1);
        let what = Ok(self.columns.finish()?);
        Ok(Arrived { topic: self.topic, partition: self.key.1, offset, what })
    }
}

struct Columns {
    values: Binary,
    keys: Binary,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    stamped: Vec<bool>,
    headers: Option<Vec<(usize, Headers)>>,
}

impl Columns {
    /// For so many records like this one, if they are small; a sixteenth more, because growing later copies everything.
    fn with_capacity(count: usize, message: &Message) -> Columns {
        let size = |of_one: usize| count * of_one.min(USUAL_BYTES) * 17 / 16;
        Columns {
            values: Binary::with_capacity(count, size(message.len)),
            keys: Binary::with_capacity(count, size(message.key_len)),
            offsets: Vec::with_capacity(count),
            timestamps: Vec::with_capacity(count),
            stamped: Vec::with_capacity(count),
            headers: None,
        }
    }

    fn size(&self) -> usize {
        self.values.bytes.len() + self.keys.bytes.len()
    }

    fn finish(self) -> Result<Records, ArrowError> {
        let count = self.offsets.len();
        Ok(Records {
            values: self.values.finish()?,
            keys: self.keys.finish()?,
            offsets: numbers(self.offsets, None)?,
            timestamps: numbers(self.timestamps, validity(self.stamped))?,
            headers: self.headers,
            count,
        })
    }
}

struct Binary {
    ends: Vec<i32>,
    bytes: Vec<u8>,
    valid: Vec<bool>,
}

impl Binary {
    fn with_capacity(count: usize, size: usize) -> Binary {
        let mut ends = Vec::with_capacity(count + 1);
        ends.push(0);
        Binary { ends, bytes: Vec::with_capacity(size), valid: Vec::with_capacity(count) }
    }

    #[inline]
    fn push(&mut self, value: Option<&[u8]>) {
        self.valid.push(value.is_some());
        self.bytes.extend_from_slice(value.unwrap_or_default());
        // A group has fewer bytes than 32 bits can count; if not, Arrow refuses the column.
        self.ends.push(i32::try_from(self.bytes.len()).unwrap_or(-1));
    }

    fn finish(self) -> Result<ArrayData, ArrowError> {
        ArrayData::builder(DataType::Binary)
            .len(self.valid.len())
            .add_buffer(Buffer::from_vec(self.ends))
            .add_buffer(Buffer::from_vec(self.bytes))
            .nulls(validity(self.valid))
            .build()
    }
}

fn numbers(found: Vec<i64>, nulls: Option<NullBuffer>) -> Result<ArrayData, ArrowError> {
    let count = found.len();
    ArrayData::builder(DataType::Int64).len(count).add_buffer(Buffer::from_vec(found)).nulls(nulls).build()
}

fn validity(valid: Vec<bool>) -> Option<NullBuffer> {
    valid.contains(&false).then(|| NullBuffer::new(BooleanBuffer::from(valid)))
}

/// None where there is no pointer: an empty value has one.
///
/// # Safety
/// `start` is null, or there are `size` bytes, which do not change as long as the slice lives.
unsafe fn bytes<'a>(start: *const u8, size: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller promises it.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, size) })
}

/// A copy of a text; empty where there is no pointer.
///
/// # Safety
/// `said` is null, or a text that ends with a NUL.
unsafe fn text(said: *const c_char) -> String {
    // SAFETY: the caller promises it.
    if said.is_null() { String::new() } else { unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned() }
}

/// Called by librdkafka, by any of its threads.
///
/// # Safety
/// Both texts are null, or end with a NUL.
unsafe extern "C" fn keep(_client: Pointer, level: c_int, facility: *const c_char, line: *const c_char) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    if log.len() < LINES_KEPT {
        // SAFETY: the caller promises it.
        let said = unsafe { format!("{} {}", text(facility), text(line)) };
        log.push_back((level, said));
    }
}

/// What was logged since, by all consumers.
pub fn logged() -> Vec<(i32, String)> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
}
