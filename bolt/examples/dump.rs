//! Prints every pair of a bbolt file: `cargo run -p bolt --example dump -- FILE`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: dump FILE")?;
    let mut file = std::fs::read(&path)?;
    if bolt::digest_follows(file.len() as u64) {
        file.truncate(file.len() - 32);
    }
    let db = bolt::Db::open(file)?;
    println!("{:?} {:?}", db.meta(), db.summary()?);
    for finding in db.check() {
        println!("{finding}");
    }
    for name in db.buckets()? {
        let Some(bucket) = db.bucket(&name)? else { continue };
        println!("{}:", name.escape_ascii());
        for pair in bucket.pairs() {
            let (key, value) = pair?;
            println!("  {} = {}", key.escape_ascii(), value.escape_ascii());
        }
    }
    Ok(())
}
